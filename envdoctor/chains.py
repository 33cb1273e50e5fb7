"""Which requirement brings a package in, read from the notes that uv adds to what it resolves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# One line for each package: `beta==1.0   # via alpha, gamma`. What the project itself requires is
# `via NAME (pyproject.toml)`.
_LINE = re.compile(r"([A-Za-z0-9._-]+)==\S+\s+# via (.+)")
_PROJECT = re.compile(r".+ \(.*pyproject\.toml\)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")

Parents = dict[str, tuple[str, ...]]
"""By package, the packages that require it; one without any is required by the project."""


def parents_of(text: str) -> Parents:
    """Return who requires what, from the output of `uv pip compile --annotation-style line`."""
    found: Parents = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match:
            via = match[2].split(", ")
            named = tuple(canonicalize_name(item) for item in via if _NAME.fullmatch(item))
            is_wanted = any(_PROJECT.fullmatch(item) for item in via)
            found[canonicalize_name(match[1])] = () if is_wanted else named
    return found


def chain_of(name: str, parents: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the shortest chain from a package up to what the project requires.

    Args:
        name: The package; the chain begins with it.
        parents: Who requires what.

    Returns:
        Names; empty if no chain is known.
    """
    chains: list[tuple[str, ...]] = [(name,)]
    seen = {name}
    for chain in chains:
        if chain[-1] not in parents:
            continue
        above = parents[chain[-1]]
        if not above:
            return chain
        chains += [(*chain, parent) for parent in above if parent not in seen]
        seen.update(above)
    return ()


def told(chain: Sequence[str], requirements: Sequence[str]) -> str:
    """Return a chain in words.

    Args:
        chain: As `chain_of` returns it.
        requirements: What the project requires.
    """
    if not chain:
        return ""
    wanted = next((text for text in requirements if _name_of(text) == chain[-1]), chain[-1])
    if len(chain) == 1:
        return f'{chain[0]} is your requirement "{wanted}"'
    between = " <- ".join(chain[1:])
    return f'{chain[0]} comes through {between} <- your requirement "{wanted}"'


def _name_of(requirement: str) -> str:
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        return ""
