"""Turn what a user wrote into one clear line for each problem."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ConfigError(Exception):
    """A file the user wrote cannot be used; exit code 2.

    Args:
        problems: One line each: file, dotted key, what was found, what is wanted.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def problems_of(raw: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """Return one line for each way in which `raw` is not a `kind`.

    msgspec stops at the first problem; this looks at every key of every section.

    Args:
        raw: A table as TOML gave it.
        kind: The struct it should become; sections are structs as well.
        prefix: Dotted key of the table, with its trailing dot.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    problems = [
        unknown_key(prefix + key, known=[prefix + name for name in fields])
        for key in raw
        if key not in fields
    ]
    for name, field in fields.items():
        if name not in raw:
            if field.required:
                problems.append(f"{prefix}{name}: missing, wanted {describe(field.type)}")
        elif is_section(field.type) and isinstance(raw[name], dict):
            problems += problems_of(raw[name], field.type, f"{prefix}{name}.")
        else:
            problems += value_problems(raw[name], field.type, prefix + name)
    return problems


def is_section(kind: Any) -> bool:
    """Return whether a field's type is a struct, which TOML writes as a table."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def unknown_key(key: str, known: Sequence[str]) -> str:
    """Return the line for a key that does not exist, with the nearest that does."""
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known keys: {', '.join(known)}"
    return f"{key}: unknown key; {hint}"


def value_problems(value: Any, kind: Any, key: str) -> list[str]:
    """Return the line for a value of the wrong type or range, or nothing."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return [f"{key}: found {shown(value)}, wanted {describe(kind)}"]
    return []


def shown(value: Any) -> str:
    """Return the value as the user wrote it, cut to a readable length."""
    text = repr(value)
    limit = 60
    return text if len(text) <= limit else text[: limit - 3] + "..."


def describe(kind: Any) -> str:
    """Return the wanted type and range in words.

    Raises:
        TypeError: A config field has a type that is not put into words here.
    """
    return _describe(msgspec.inspect.type_info(kind))


def _describe(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.UnionType(types=types):
            # TOML has no null, so an optional field is either absent or of its other type.
            wanted = [one for one in types if not isinstance(one, msgspec.inspect.NoneType)]
            words = " or ".join(_describe(one) for one in wanted)
        case msgspec.inspect.VarTupleType(item_type=item):
            words = f"a list, each item {_describe(item)}"
        case msgspec.inspect.TupleType(item_types=items):
            words = f"a list of {len(items)}, each item {_describe(items[0])}"
        case msgspec.inspect.StructType(cls=cls):
            words = f"a table with {', '.join(cls.__struct_encode_fields__)}"
        case msgspec.inspect.LiteralType(values=values):
            words = "one of " + ", ".join(str(value) for value in values)
        case _:
            words = _describe_scalar(info)
    return words


def _describe_scalar(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.IntType():
            words = " ".join(["a whole number", *_limits(info)])
        case msgspec.inspect.FloatType():
            words = " ".join(["a number", *_limits(info)])
        case msgspec.inspect.StrType(pattern=None):
            words = "text that is not empty" if info.min_length else "text"
        case msgspec.inspect.StrType():
            words = "a name of letters, digits, '.', '_' and '-'"
        case msgspec.inspect.BoolType():
            words = "true or false"
        case _:
            raise TypeError(f"no words for {info}")
    return words


def _limits(info: msgspec.inspect.IntType | msgspec.inspect.FloatType) -> list[str]:
    bounds = (("at least", info.ge), ("above", info.gt), ("at most", info.le), ("below", info.lt))
    return [f"{word} {bound:g}" for word, bound in bounds if bound is not None]
