"""Settings on the command line, `--set KEY=VALUE`, over those of a run file; imports no torch."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from train.settings import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

_BARE_TEXT = re.compile(r"[^\s\"'\[\]{}#]+")


@dataclass(frozen=True)
class Override:
    """One setting.

    Args:
        key: Dotted, as in messages about the run file.
        value: What TOML gives.
    """

    key: str
    value: Any

    def touches(self, key: str) -> bool:
        """Return whether it sets another dotted key, or what that one lies in."""
        return f"{key}.".startswith(f"{self.key}.")


def add_set_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--set`; what is given comes as a list, `options.set`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="lay a setting over the run file, as train.epochs=3; may be given again",
    )


def parse_overrides(texts: Sequence[str], kind: type[msgspec.Struct]) -> list[Override]:
    """Parse what stands behind `--set`; of two for one key the later comes later.

    Args:
        texts: `KEY=VALUE`, the key dotted and the value as in TOML; text without spaces and
            brackets needs no quotes.
        kind: What the settings are of.

    Raises:
        ConfigError: A line for each that is no setting, or whose key does not exist.
    """
    known = [key for key, _ in dotted_fields(kind)]
    overrides: list[Override] = []
    problems: list[str] = []
    for text in texts:
        try:
            override = _parsed(text)
            _require_known(override.key, known)
        except ConfigError as error:
            problems += error.problems
        else:
            overrides.append(override)
    if problems:
        raise ConfigError(problems)
    return overrides


def overlaid(raw: Mapping[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    """Return a run file's tables with settings laid over them; the argument stays as it is.

    Raises:
        ConfigError: The run file has something else where a setting needs a table.
    """
    result = dict(raw)
    for override in overrides:
        *sections, name = override.key.split(".")
        table = result
        for section in sections:
            inner = table.get(section, {})
            if not isinstance(inner, dict):
                raise ConfigError([f"{section}: found {inner!r}, wanted a table"])
            table[section] = table = dict(inner)
        table[name] = override.value
    return result


def dotted_fields(
    kind: type[msgspec.Struct], prefix: str = ""
) -> Iterator[tuple[str, msgspec.structs.FieldInfo]]:
    """Yield the dotted key of each field of a struct and of its sections, sections first."""
    for field in msgspec.structs.fields(kind):
        key = prefix + field.encode_name
        yield key, field
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from dotted_fields(field.type, f"{key}.")


def _parsed(text: str) -> Override:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not re.fullmatch(r"\w+(\.\w+)*", key):
        raise ConfigError([f"--set {text}: wanted KEY=VALUE with a dotted key, as train.epochs=3"])
    try:
        found = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError as error:
        if _BARE_TEXT.fullmatch(value):
            return Override(key, value)
        raise ConfigError(
            [f"--set {key}: found {value!r}, wanted a value as in TOML: {error}"]
        ) from error
    if found.keys() != {"value"}:
        raise ConfigError([f"--set {key}: found {value!r}, wanted one value as in TOML"])
    return Override(key, found["value"])


def _require_known(key: str, known: Sequence[str]) -> None:
    if key in known:
        return
    name = key.rpartition(".")[2]
    names = {one: one.rpartition(".")[2] for one in known}
    # A key without its section is likelier than a misspelt one that looks like another.
    guesses = [one for one, last in names.items() if last == name]
    guesses = guesses or difflib.get_close_matches(key, known, n=1, cutoff=0.8)
    if not guesses:
        near = difflib.get_close_matches(name, names.values(), n=1)
        guesses = [one for one, last in names.items() if last in near]
    hint = f"did you mean {' or '.join(guesses)}?" if guesses else "`train fields` lists them all"
    raise ConfigError([f"--set {key}: unknown key; {hint}"])
