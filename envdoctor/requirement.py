"""One requirement of a package, read without `packaging` where it is written plainly.

Importing `packaging` takes as long as comparing twelve thousand files, and nearly all that is read
here looks like `nvidia-nccl-cu12==2.27.5; platform_system == "Linux"`. Whatever looks otherwise is
left to `packaging`.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from envdoctor.value import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Release = tuple[int, ...]

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_BLANK = r"[ \t]*"
_LINE = re.compile(
    rf"{_BLANK}({_NAME}){_BLANK}(?:\[({_NAME}(?:{_BLANK},{_BLANK}{_NAME})*)\])?"
    rf"{_BLANK}(\(?)([^;@()]*)(\)?){_BLANK}(?:;(.+))?"
)
_CLAUSE = re.compile(r"(==|!=|<=|>=|<|>|~=(?=[ \t]*[0-9]+\.))[ \t]*([0-9]+(?:\.[0-9]+)*)")
_CONDITION = re.compile(r"(\w+)[ \t]*==[ \t]*(?:\"([^\"]*)\"|'([^']*)')")
_RELEASE = re.compile(r"([0-9]+(?:\.[0-9]+)*)(?:\+[A-Za-z0-9.]+)?")
_PLAIN_VARIABLES = frozenset({
    "extra", "implementation_name", "os_name", "platform_machine",
    "platform_python_implementation", "platform_system", "sys_platform",
})  # fmt: skip
"""Variables that markers compare as text; the others are versions."""


class InvalidRequirementError(ValueError):
    """A line is no requirement."""


@value
class Clause:
    """One condition on a version, such as `>=` and `2.10`."""

    operator: str
    version: str


@value
class Requirement:
    """What one package requires of another.

    Args:
        name: As written.
        extras: That it asks for.
        clauses: Conditions on the version, all of which have to hold, in the order of `packaging`.
        marker: When it applies; empty for always.
    """

    name: str
    extras: frozenset[str] = frozenset()
    clauses: tuple[Clause, ...] = ()
    marker: str = field(default="", compare=False)

    @property
    def specifier(self) -> str:
        """The conditions as one text, such as `<14,>=13.0.3`."""
        return ",".join(f"{clause.operator}{clause.version}" for clause in self.clauses)

    @property
    def text(self) -> str:
        """The requirement without extras and marker, such as `torch==2.9.0`."""
        return f"{self.name}{self.specifier}"

    def is_met_by(self, version: str) -> bool:
        """Tell whether a version meets all conditions; one that nobody can read does not."""
        found = _RELEASE.fullmatch(version)
        if found is None or not all(map(_is_plain, self.clauses)):
            return _is_met(self.specifier, version)
        return all(_holds(found[1], clause) for clause in self.clauses)

    def applies(self, environment: Mapping[str, str], extras: Iterable[str]) -> bool:
        """Tell whether it applies in an environment when these extras are asked for."""
        if not self.marker:
            return True
        values = [{**environment, "extra": extra} for extra in extras] or [dict(environment)]
        conditions = _conditions(self.marker)
        if conditions is None:
            return _applies(self.marker, values)
        return any(all(value[name] == text for name, text in conditions) for value in values)


def parse(line: str) -> Requirement:
    """Read a Requires-Dist line.

    Raises:
        InvalidRequirementError: It is no requirement.

    Source: PEP 508, PEP 440.
    """
    match = _LINE.fullmatch(line)
    if match is None or bool(match[3]) != bool(match[5]) or (match[6] or ";").isspace():
        return _parse(line)
    text, marker = match[4].strip(" \t"), (match[6] or "").strip(" \t")
    parts = [part.strip(" \t") for part in text.split(",")] if text else []
    found = [_CLAUSE.fullmatch(part) for part in parts]
    if not all(found) or (marker and _conditions(marker) is None):
        return _parse(line)
    clauses = sorted(f"{item[1]} {item[2]}" for item in found if item)
    extras = match[2].split(",") if match[2] else []
    return Requirement(
        name=match[1],
        extras=frozenset(extra.strip(" \t") for extra in extras),
        clauses=tuple(Clause(*clause.split(" ")) for clause in clauses),
        marker=marker,
    )


def _conditions(marker: str) -> list[tuple[str, str]] | None:
    """Return variables and the values they must have; None if a marker is not that plain."""
    found = [_CONDITION.fullmatch(part.strip(" \t")) for part in marker.split(" and ")]
    if not all(match and match[1] in _PLAIN_VARIABLES for match in found):
        return None
    return [(match[1], match[2] or match[3] or "") for match in found if match]


def _numbers(release: str) -> Release:
    """Return a release as numbers without trailing zeros, which count for nothing."""
    numbers = [int(part) for part in release.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _is_plain(clause: Clause) -> bool:
    """Tell whether a clause compares with a release that has no further parts."""
    return _CLAUSE.fullmatch(f"{clause.operator}{clause.version}") is not None


def _holds(version: str, clause: Clause) -> bool:
    found, wanted = _numbers(version), _numbers(clause.version)
    if clause.operator == "~=":
        parts = [int(part) for part in clause.version.split(".")][:-1]
        start = (*found, *(0 for _ in parts))[: len(parts)]
        return found >= wanted and start == tuple(parts)
    return _COMPARISONS[clause.operator](found, wanted)


_COMPARISONS: dict[str, Callable[[Release, Release], bool]] = {
    "==": lambda found, wanted: found == wanted,
    "!=": lambda found, wanted: found != wanted,
    "<=": lambda found, wanted: found <= wanted,
    ">=": lambda found, wanted: found >= wanted,
    "<": lambda found, wanted: found < wanted,
    ">": lambda found, wanted: found > wanted,
}


def _parse(line: str) -> Requirement:
    from packaging.requirements import InvalidRequirement  # noqa: PLC0415  see above
    from packaging.requirements import Requirement as Parsed  # noqa: PLC0415

    try:
        parsed = Parsed(line)
    except (InvalidRequirement, ValueError) as error:
        raise InvalidRequirementError(str(error)) from None
    clauses = sorted(parsed.specifier, key=str)
    return Requirement(
        name=parsed.name,
        extras=frozenset(parsed.extras),
        clauses=tuple(Clause(item.operator, item.version) for item in clauses),
        marker=str(parsed.marker or ""),
    )


def _is_met(specifier: str, version: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415  see above
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


def _applies(marker: str, values: list[dict[str, str]]) -> bool:
    from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName  # noqa: PLC0415

    try:
        parsed = Marker(marker)
        return any(parsed.evaluate(value) for value in values)
    except (InvalidMarker, UndefinedEnvironmentName, ValueError) as error:
        raise InvalidRequirementError(str(error)) from None
