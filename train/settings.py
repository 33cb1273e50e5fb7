"""Turn what a user wrote in TOML into one clear line for each problem.

envdoctor reads its profiles with it as well: this package needs no envdoctor, but not the other way
round.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SHOWN_CHARACTERS = 60


class ConfigError(Exception):
    """A file the user wrote cannot be used; exit code 2.

    Args:
        problems: One line each: file, dotted key, what was found, what is wanted.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def problems_of(raw: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """Return one line for each way in which a table is not a `kind`.

    msgspec stops at the first problem; this looks at every key of every section.

    Args:
        raw: A table as TOML gave it.
        kind: The struct it should become; sections are structs as well.
        prefix: Dotted key of the table, with its trailing dot.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    known = [prefix + name for name in fields]
    found = [_unknown(prefix + key, known) for key in raw.keys() - fields]
    for name, field in fields.items():
        key = prefix + name
        if name in raw:
            found += _value_problems(raw[name], field.type, key)
        elif field.required:
            found.append(f"{key}: missing, wanted {describe(field.type)}")
    return sorted(found)


def describe(kind: Any) -> str:
    """Return the wanted type, with its limits, in words.

    Raises:
        TypeError: A field has a type that is not put into words here.
    """
    return _describe(msgspec.inspect.type_info(kind))


def _unknown(key: str, known: Sequence[str]) -> str:
    nearest = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known keys: {', '.join(known)}"
    return f"{key}: unknown key; {hint}"


def _value_problems(value: Any, kind: Any, key: str) -> list[str]:
    if _is_struct(kind) and isinstance(value, dict):
        return problems_of(value, kind, f"{key}.")
    item = next(iter(get_args(kind)), None)
    if _is_struct(item) and isinstance(value, list):
        lists = [_value_problems(one, item, f"{key}[{i}]") for i, one in enumerate(value)]
        return [problem for found in lists for problem in found]
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return [f"{key}: found {_shown(value)}, wanted {describe(kind)}"]
    return []


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _describe(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.Metadata(extra_json_schema={"description": str(words)}):
            return words
        case msgspec.inspect.LiteralType(values=values):
            return "one of " + ", ".join(str(value) for value in values)
        case msgspec.inspect.VarTupleType() | msgspec.inspect.TupleType():
            return _describe_list(info)
        case msgspec.inspect.DictType(value_type=value):
            return f"a table, each value {_describe(value)}"
        case msgspec.inspect.UnionType(types=types):
            # TOML has no null: an optional field is absent or of its other type.
            wanted = [one for one in types if not isinstance(one, msgspec.inspect.NoneType)]
            return " or ".join(_describe(one) for one in wanted)
        case _:
            return _describe_plain(info)


def _describe_list(info: msgspec.inspect.VarTupleType | msgspec.inspect.TupleType) -> str:
    if isinstance(info, msgspec.inspect.VarTupleType):
        return f"a list, each item {_describe(info.item_type)}"
    return f"a list of {len(info.item_types)}, each item {_describe(info.item_types[0])}"


def _describe_plain(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.IntType():
            return " ".join(["a whole number", *_limits(info)])
        case msgspec.inspect.FloatType():
            return " ".join(["a number", *_limits(info)])
        case msgspec.inspect.StrType(pattern=None, min_length=minimum):
            return "text that is not empty" if minimum else "text"
        case msgspec.inspect.StrType():
            return "a name of letters, digits, '.', '_' and '-'"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.StructType(cls=cls):
            return f"a table with {', '.join(cls.__struct_encode_fields__)}"
        case _:
            raise TypeError(f"no words for {info}")


def _limits(info: msgspec.inspect.IntType | msgspec.inspect.FloatType) -> list[str]:
    bounds = (("at least", info.ge), ("above", info.gt), ("at most", info.le), ("below", info.lt))
    return [f"{word} {bound:.12g}" for word, bound in bounds if bound is not None]
