"""Run checks over one snapshot, in order of their prerequisites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.errors import UsageError
from envdoctor.report import Finding
from envdoctor.verdict import Ok, Outcome, Problem, Severity, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from envdoctor.check import Check
    from envdoctor.facts import FactSet


def run(checks: Sequence[Check], facts: FactSet) -> tuple[Finding, ...]:
    """Evaluate checks; a check whose prerequisite did not pass is skipped.

    Args:
        checks: In an order in which prerequisites come first.
        facts: One snapshot.

    Returns:
        Findings in the order of the checks.
    """
    blocked: dict[str, str] = {}
    findings: list[Finding] = []
    for item in checks:
        obstacle = next((name for name in item.requires if name in blocked), None)
        outcomes: tuple[Outcome, ...] = (
            (Skipped(blocked[obstacle]),) if obstacle else item.evaluate(facts)
        )
        reason = _obstacle(item.id, outcomes[0])
        if reason:
            blocked[item.id] = reason
        findings += [Finding(check=item.id, outcome=outcome) for outcome in outcomes]
    return tuple(findings)


def _obstacle(name: str, outcome: Outcome) -> str:
    """Say why dependants of a check cannot be judged; empty if they can."""
    match outcome:
        case Ok():
            return ""
        case Skipped(reason):
            return reason
        case Problem(severity=severity):
            return f"{name} has to be solved first" if severity is Severity.ERROR else ""
        case _:
            return f"{name} crashed"


def select(checks: Sequence[Check], names: Iterable[str], ignored: Iterable[str]) -> list[Check]:
    """Pick checks by id, with all they require.

    Args:
        checks: All checks.
        names: Ids to run; empty means all.
        ignored: Ids to leave out.

    Returns:
        The chosen checks, in their given order.

    Raises:
        UsageError: An id does not exist; the message lists the nearest.
    """
    known = {item.id: item for item in checks}
    names, ignored = list(names), list(ignored)
    for name in [*names, *ignored]:
        if name not in known:
            raise unknown_check(name, known)
    wanted: set[str] = set()
    queue = names or list(known)
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue += known[name].requires
    return [item for item in checks if item.id in wanted and item.id not in set(ignored)]


def unknown_check(name: str, known: Iterable[str]) -> UsageError:
    """Make the error for a check id that does not exist."""
    import difflib  # noqa: PLC0415  only needed on this path

    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3)
    return UsageError(
        f"no check is named {name!r}",
        reference="unknown-check",
        hint=f"did you mean {', '.join(near)}?" if near else f"known checks: {', '.join(known)}",
    )
