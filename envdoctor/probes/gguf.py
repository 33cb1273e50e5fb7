"""Read single numbers of a GGUF file's header without reading its tensors.

Source: the GGUF specification of ggml, docs/gguf.md, version 3.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from envdoctor.probes.files import read_head

if TYPE_CHECKING:
    from pathlib import Path

_HEAD_BYTES = 64 * 1024
"""The model's own numbers stand before the vocabulary, within a few kilobytes."""

_FORMATS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_TEXT, _LIST = 8, 9


def read_gguf_number(path: Path, ending: str) -> int | None:
    """Return the whole number under the first key with an ending; None if it is not there.

    Args:
        path: The file.
        ending: End of the key, such as `.attention.head_count`.

    Raises:
        OSError: The file cannot be read.
    """
    return gguf_number(read_head(path, _HEAD_BYTES), ending)


def gguf_number(head: bytes, ending: str) -> int | None:
    """Return the same from the beginning of a file, also if it ends in the middle of a value."""
    if head[:4] != b"GGUF":
        return None
    try:
        (num_entries,) = struct.unpack_from("<Q", head, 16)
        at = 24
        for _ in range(num_entries):
            key, at = _text(head, at)
            (kind,) = struct.unpack_from("<I", head, at)
            value, at = _value(head, at + 4, kind)
            if key.endswith(ending):
                return value if isinstance(value, int) and not isinstance(value, bool) else None
    except (struct.error, KeyError, OverflowError):
        return None
    return None


def _text(head: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<Q", head, at)
    end = at + 8 + size
    if end > len(head):
        raise struct.error("cut off")
    return head[at + 8 : end].decode("utf-8", "replace"), end


def _value(head: bytes, at: int, kind: int) -> tuple[object, int]:
    """Return a value and where the next begins; lists are passed over."""
    if kind == _TEXT:
        return _text(head, at)
    if kind == _LIST:
        item, count = struct.unpack_from("<IQ", head, at)
        at += 12
        if item in _FORMATS:
            return None, at + count * struct.calcsize(_FORMATS[item])
        for _ in range(count):
            _, at = _value(head, at, item)
        return None, at
    (value,) = struct.unpack_from(f"<{_FORMATS[kind]}", head, at)
    return value, at + struct.calcsize(_FORMATS[kind])
