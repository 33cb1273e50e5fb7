"""TOML values in text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def quoted(text: str) -> str:
    """Return a string as TOML writes it.

    JSON's escapes are TOML's, but TOML knows no surrogate pairs and wants DEL escaped.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def array(items: Sequence[str]) -> str:
    """Return a list of strings as TOML writes it."""
    return f"[{', '.join(quoted(item) for item in items)}]"


def document(table: Mapping[str, Any]) -> str:
    """Return a document: plain values first, then a section for each table or list of tables.

    What is None is left out.
    """
    lines = [f"{_key(name)} = {_value(item)}" for name, item in table.items() if _is_plain(item)]
    for name, item in table.items():
        if _is_plain(item) or item is None:
            continue
        is_list = isinstance(item, list)
        header = f"[[{_key(name)}]]" if is_list else f"[{_key(name)}]"
        for section in item if is_list else [item]:
            lines += ["", header, *_lines(section)]
    return "\n".join(lines) + "\n"


def _is_plain(item: Any) -> bool:
    if isinstance(item, list):
        return not item or not all(isinstance(one, dict) for one in item)
    return item is not None and not isinstance(item, dict)


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    for name, item in table.items():
        if item is not None:
            yield f"{_key(name)} = {_value(item)}"


def _value(item: Any) -> str:
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, str):
        return quoted(item)
    if isinstance(item, list):
        return f"[{', '.join(_value(one) for one in item)}]"
    if isinstance(item, dict):
        inner = ", ".join(_lines(item))
        return f"{{ {inner} }}" if inner else "{}"
    return repr(item)


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "a").isalnum() else quoted(name)
