"""Where the receipt and the manifest of an environment lie."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envdoctor import manifest, receipt
from envdoctor.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.manifest import Manifest
    from envdoctor.receipt import Receipt

_KEY_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """The two files that say what an environment was when it passed.

    Args:
        receipt: Path of the receipt.
        manifest: Path of the manifest.
    """

    receipt: Path
    manifest: Path

    def read_receipt(self) -> Receipt | None:
        """Return the receipt; None if there is none that this version reads."""
        return receipt.read(self.receipt)

    def read_manifest(self) -> Manifest | None:
        """Return the manifest; None if there is none that this version reads."""
        return manifest.read(self.manifest)


def seal_of(env: Path, home: Path | None) -> Seal:
    """Return where the seal of an environment is, or would be.

    Args:
        env: Its folder. One that was built lies in HOME/envs/PROFILE, with its seal beside it.
        home: Where the seals of adopted environments lie; None if it was built.
    """
    real = env.resolve()
    place = Store(real.parent.parent.parent, real.parent.name)
    if home is None or is_built(real):
        return Seal(receipt=place.receipt(real.name), manifest=place.manifest(real.name))
    folder, name = folder_of_adopted(home), key(real)
    return Seal(receipt=folder / f"{name}.json", manifest=folder / f"{name}.manifest")


def is_built(real: Path) -> bool:
    """Tell whether a real folder is a generation that envdoctor built."""
    return (real.parent / "receipts").is_dir() and real.parent.parent.name == "envs"


def folder_of_adopted(home: Path) -> Path:
    """Return where the seals of adopted environments lie."""
    return home / "adopted"


def key(real: Path) -> str:
    """Return the name under which the environment in a folder is adopted."""
    return hashlib.sha256(str(real).encode(errors="surrogateescape")).hexdigest()[:_KEY_LENGTH]
