"""What changed between two states of an environment, most suspicious first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, get_args

from envdoctor.states import Section
from envdoctor.suspicion import Suspicion, suspicion_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.states import State

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that changed.

    Args:
        section: What kind of thing it is.
        key: Its name.
        before: What it was; None if it was not there.
        after: What it is; None if it is gone.
        suspicion: Whether it can be why torch or CUDA stopped working.
        reason: Why that is thought.
    """

    section: Section
    key: str
    before: str | None
    after: str | None
    suspicion: Suspicion
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two states beside each other.

    Args:
        before: Name of the first.
        after: Name of the second.
        changes: Most suspicious first.
        not_compared: What only one of them tells.
    """

    before: str
    after: str
    changes: tuple[Change, ...]
    not_compared: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-able data."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


def compare(before: State, after: State) -> Comparison:
    """Compare two states in what both tell."""
    sections: tuple[Section, ...] = get_args(Section)
    shared = [name for name in sections if name in before.sections and name in after.sections]
    lone = [
        f"{name}: only {state.name} tells"
        for state in (before, after)
        for name in sections
        if name in state.sections and name not in shared
    ]
    levels: tuple[Suspicion, ...] = get_args(Suspicion)
    changes = [change for name in shared for change in _changes(name, before, after)]
    changes.sort(
        key=lambda item: (levels.index(item.suspicion), sections.index(item.section), item.key)
    )
    return Comparison(
        before=before.name, after=after.name, changes=tuple(changes), not_compared=tuple(lone)
    )


def _changes(section: Section, before: State, after: State) -> Iterator[Change]:
    old, new = before.sections[section], after.sections[section]
    for key in sorted({*old, *new}):
        values = old.get(key), new.get(key)
        if values[0] == values[1]:
            continue
        suspicion, reason = suspicion_of(section, key, values, before=before, after=after)
        yield Change(
            section=section,
            key=key,
            before=values[0],
            after=values[1],
            suspicion=suspicion,
            reason=reason,
        )
