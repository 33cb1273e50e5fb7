"""Where stamps and remembered keys lie below envdoctor's home."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER = "compile-caches"


def folder(home: Path) -> Path:
    """Return the folder of all stamps and keys."""
    return home / _FOLDER


def place(home: Path, root: str) -> Path:
    """Return the folder of a cache's stamps.

    Args:
        home: envdoctor's own folder.
        root: The cache's, links resolved.
    """
    import hashlib  # noqa: PLC0415  it loads OpenSSL, which a check without stamps does not need

    name = hashlib.sha256(root.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return folder(home) / name


def is_stamped(home: Path, path: str) -> bool:
    """Tell whether anything vouches for a cache, without reading it."""
    return folder(home).is_dir() and any(place(home, os.path.realpath(path)).glob("*.json"))
