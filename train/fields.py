"""Describe every setting of a run file from the code that defines it; imports no torch."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from train.config import TrainConfig
from train.overrides import dotted_fields
from train.settings import describe

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Setting:
    """One setting.

    Args:
        key: Dotted.
        wanted: Which values it takes, in words.
        default: As TOML writes it; empty where it must be given, or where it is unset.
        meaning: Its documentation, with the unit.
        is_required: Whether it must be given.
    """

    key: str
    wanted: str
    default: str
    meaning: str
    is_required: bool


def settings() -> Iterator[Setting]:
    """Yield every setting, in the order of the sections."""
    documented: dict[str, str] = {}
    kinds: list[tuple[str, type[msgspec.Struct]]] = [("", TrainConfig), *_sections()]
    for section, kind in kinds:
        for name, text in docstrings(kind).items():
            documented[f"{section}{name}"] = text
    for key, field in dotted_fields(TrainConfig):
        if not _is_section(field.type):
            yield Setting(
                key=key,
                wanted=describe(field.type),
                default=_default(field),
                meaning=documented.get(key, ""),
                is_required=field.required,
            )


def table() -> str:
    """Return all settings as text for a terminal."""
    blocks = []
    for one in settings():
        default = "required" if one.is_required else f"default {one.default or 'unset'}"
        head = f"{one.key}: {one.wanted}; {default}"
        wrapped = [
            textwrap.fill(head, width=100, subsequent_indent="      "),
            textwrap.fill(one.meaning, width=100, initial_indent="    ", subsequent_indent="    "),
        ]
        blocks.append("\n".join(part for part in wrapped if part))
    return "\n".join(blocks) + "\n"


def docstrings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the text that stands below each field in the source of a struct."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    found: dict[str, str] = {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for field, below in itertools.pairwise(statements):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def _sections() -> Iterator[tuple[str, type[msgspec.Struct]]]:
    for key, field in dotted_fields(TrainConfig):
        kind: Any = field.type
        if _is_section(kind):
            yield f"{key}.", kind


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT or field.default is None:
        return ""
    value = field.default
    return msgspec.json.encode(value).decode().replace(",", ", ")
