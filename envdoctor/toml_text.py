"""TOML values in text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def quoted(text: str) -> str:
    """Return a string as TOML writes it.

    JSON's escapes are TOML's, but TOML knows no surrogate pairs and wants DEL escaped.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def array(items: Sequence[str]) -> str:
    """Return a list of strings as TOML writes it."""
    return f"[{', '.join(quoted(item) for item in items)}]"
