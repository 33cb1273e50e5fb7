"""Run probes in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.facts import Fact, FactSet, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from envdoctor.probes.subject import Subject

Probe = tuple[type[Fact], "Callable[[Subject, FactSet], Fact]"]
"""A fact, and what reads it."""


def collect_with(probes: Iterable[Probe], subject: Subject, given: FactSet | None) -> FactSet:
    """Run those probes whose fact is not given; one that cannot look leaves its reason.

    Args:
        probes: In an order in which each finds the facts it builds on.
        subject: What to look at.
        given: Facts that stand in for this machine's, from a snapshot.
    """
    facts = given or FactSet([])
    for kind, probe in probes:
        if not isinstance(facts.get(kind), Unavailable):
            continue
        try:
            facts = facts.having(probe(subject, facts))
        except (OSError, LookupError) as error:
            facts = facts.lacking(kind, f"{_words(kind)} could not be read: {error}")
    return facts


def _words(kind: type[Fact]) -> str:
    """Return a kind's name as people write it: `LoaderCacheFact` is "loader cache"."""
    letters = kind.__name__.removesuffix("Fact")
    return "".join(f" {char.lower()}" if char.isupper() else char for char in letters).strip()
