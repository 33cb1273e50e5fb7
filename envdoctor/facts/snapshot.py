"""The facts of one machine as JSON, written for another to judge."""

from __future__ import annotations

import difflib
import json
import re
import types
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import envdoctor.facts
from envdoctor import __version__, user_files
from envdoctor.errors import UserFileError
from envdoctor.facts.fact import Fact, FactSet, Unavailable
from envdoctor.facts.policy import PolicyFact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

SCHEMA_VERSION = 1
_SHOWN_CHARACTERS = 60
_LIMIT_BYTES = 256 * user_files.MIB
_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    types.NoneType: "null",
}


def kinds() -> dict[str, type[Fact]]:
    """Return every kind of fact that a snapshot may hold, by its name there.

    What an environment is wanted for is no reading of a machine: it comes from the command line of
    whoever judges, as all of `envdoctor.facts.policy` does.
    """
    found = (
        value
        for value in vars(envdoctor.facts).values()
        if isinstance(value, type) and issubclass(value, Fact)
    )
    own = (Fact.__module__, PolicyFact.__module__)
    return {kind_name(kind): kind for kind in found if kind.__module__ not in own}


def kind_name(kind: type[Fact]) -> str:
    """Return a kind's name in a snapshot: `TorchBuildFact` is `torch_build`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Fact")).lower()


def to_data(facts: FactSet) -> dict[str, Any]:
    """Return a snapshot as JSON-able data."""
    known = kinds().values()
    return {
        "schema_version": SCHEMA_VERSION,
        "envdoctor_version": __version__,
        "facts": {kind_name(type(fact)): _plain(fact) for fact in facts if type(fact) in known},
        "unavailable": {
            kind_name(kind): why.reason for kind, why in facts.unavailable.items() if kind in known
        },
    }


def load(path: Path) -> FactSet:
    """Read a snapshot from a file, or from a pipe.

    Raises:
        UserFileError: It cannot be read or is no snapshot; the message names the key at fault.
    """
    content = user_files.read(
        path, reference="snapshot-invalid", limit_bytes=_LIMIT_BYTES, may_be_stream=True
    )
    try:
        raw = json.loads(content)
    # json raises ValueError for bad UTF-8 and for numbers too long, RecursionError for deep nesting
    except (ValueError, RecursionError) as error:
        raise UserFileError(f"{path}: no snapshot: {error}", reference="snapshot-invalid") from None
    return from_data(raw, source=str(path))


def from_data(raw: object, *, source: str) -> FactSet:
    """Return the facts of a snapshot.

    Args:
        raw: What JSON gave.
        source: Name of the file, for messages.

    Raises:
        UserFileError: A key is unknown or missing, or a value has another type than is wanted.
    """
    try:
        return _read(raw)
    except _InvalidError as error:
        raise UserFileError(f"{source}: {error}", reference="snapshot-invalid") from None


class _InvalidError(Exception):
    """A value is not what its key wants; the message names both."""


def _read(raw: object) -> FactSet:
    top = _object(raw, "the snapshot")
    _known_keys(top, ["schema_version", "envdoctor_version", "facts", "unavailable"], "")
    if top.get("schema_version") != SCHEMA_VERSION:
        _refuse(top.get("schema_version"), "schema_version", str(SCHEMA_VERSION))
    known = kinds()
    given = _object(top.get("facts", {}), "facts")
    missing = _object(top.get("unavailable", {}), "unavailable")
    _known_keys(given, known, "facts.")
    _known_keys(missing, known, "unavailable.")
    return FactSet(
        [_structure(value, known[name], f"facts.{name}") for name, value in given.items()],
        {
            known[name]: Unavailable(_convert(reason, str, f"unavailable.{name}"))
            for name, reason in missing.items()
        },
    )


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _convert(value: Any, kind: Any, key: str) -> Any:
    """Return a JSON value as its wanted type."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _convert_union(value, kind, key)
    if origin is tuple:
        return _convert_tuple(value, get_args(kind), key)
    if origin is dict:
        inner = get_args(kind)[1]
        items = _object(value, key).items()
        return {name: _convert(item, inner, f"{key}.{name}") for name, item in items}
    if is_dataclass(kind):
        return _structure(value, kind, key)
    if origin is Literal:
        fits = isinstance(value, str) and value in get_args(kind)
    elif kind is float:
        fits = type(value) in (int, float)
    else:
        fits = type(value) is kind  # a bool is an int to isinstance
    return value if fits else _refuse(value, key, describe(kind))


def _convert_union(value: Any, kind: Any, key: str) -> Any:
    arms = get_args(kind)
    if value is None and types.NoneType in arms:
        return None
    others = [arm for arm in arms if arm is not types.NoneType]
    if len(others) == 1 and (is_dataclass(others[0]) or get_origin(others[0])):
        return _convert(value, others[0], key)  # its message names the key further in
    for arm in others:
        try:
            return _convert(value, arm, key)
        except _InvalidError:
            continue
    return _refuse(value, key, describe(kind))


def _convert_tuple(value: Any, arms: tuple[Any, ...], key: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        _refuse(value, key, "a list")
    if arms[-1] is Ellipsis:
        return tuple(_convert(item, arms[0], f"{key}[{at}]") for at, item in enumerate(value))
    if len(value) != len(arms):
        _refuse(value, key, f"a list of {len(arms)}")
    pairs = enumerate(zip(value, arms, strict=True))
    return tuple(_convert(item, arm, f"{key}[{at}]") for at, (item, arm) in pairs)


def _structure(value: Any, kind: Any, key: str) -> Any:
    hints = get_type_hints(kind)
    wanted = {field.name: field for field in fields(kind)}
    table = _object(value, key)
    _known_keys(table, wanted, f"{key}.")
    for name, field in wanted.items():
        if name not in table and _is_required(field):
            raise _InvalidError(f"{key}.{name}: missing, wanted {describe(hints[name])}")
    return kind(
        **{name: _convert(item, hints[name], f"{key}.{name}") for name, item in table.items()}
    )


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _object(value: object, key: str) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _refuse(value, key, "an object")


def _known_keys(found: Iterable[str], known: Collection[str], prefix: str) -> None:
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
            raise _InvalidError(f"{prefix}{name}: unknown key; {hint}")


def _refuse(value: object, key: str, wanted: str) -> NoReturn:
    shown = repr(value)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[: _SHOWN_CHARACTERS - 3] + "..."
    raise _InvalidError(f"{key}: found {shown}, wanted {wanted}")


def describe(kind: Any) -> str:
    """Return a wanted type in words."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, get_args(kind)))
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(describe(arm) for arm in get_args(kind))
    if get_origin(kind) is tuple:
        return "a list"
    return _WORDS.get(kind, "an object")
