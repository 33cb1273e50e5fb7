"""Make text that came from files and variables safe to print and to encode."""

from __future__ import annotations

import re
from typing import Any

_NO_UTF8 = re.compile("[\ud800-\udfff]")
# Source: PEP 383; a byte of a path that is no UTF-8 is kept in the low half of a surrogate.
_KEPT_BYTES = range(0xDC80, 0xDD00)
_ONE_BYTE = 0xFF
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def one_line(text: str) -> str:
    """Return text as one line, with an escape for each character that does not show.

    A control character could drive a terminal or fake a line of output; an invisible one could make
    a path read as another.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def encodable(text: str) -> str:
    r"""Return text that UTF-8 can encode: a byte of a path that is no UTF-8 is shown as `\xff`."""
    return _NO_UTF8.sub(lambda match: _escape(match[0]), text)


def encodable_data(value: Any) -> Any:
    """Return JSON-able data in which all text can be encoded."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable_data(key): encodable_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encodable_data(item) for item in value]
    return value


def _escape(char: str) -> str:
    code = ord(char)
    if code in _KEPT_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    return _SHORT.get(char) or (f"\\x{code:02x}" if code <= _ONE_BYTE else f"\\u{code:04x}")
