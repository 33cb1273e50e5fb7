"""Run checks over one snapshot, in order of their prerequisites."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from envdoctor.errors import UsageError
from envdoctor.facts import SuppressionsFact
from envdoctor.report import Finding
from envdoctor.verdict import Crashed, Ok, Outcome, Problem, Severity, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from envdoctor.check import Check
    from envdoctor.facts import FactSet, Suppression


def run(
    checks: Sequence[Check], facts: FactSet, *, suppressions: Sequence[Suppression] = ()
) -> tuple[Finding, ...]:
    """Evaluate checks; one whose prerequisite did not pass, or that only shows what follows, skips.

    Args:
        checks: In an order in which prerequisites come first.
        facts: One snapshot.
        suppressions: Problems that shall not count. They stay in the report, and what requires
            their check is judged as if it had passed.

    Returns:
        Findings in the order of the checks.
    """
    blocked: dict[str, str] = {}
    wrong: set[str] = set()
    findings: list[Finding] = []
    for item in checks:
        if any(kind is SuppressionsFact for _, kind in item.reads):
            facts = facts.having(_effect(suppressions, findings))
        obstacle = next((name for name in item.requires if name in blocked), None)
        outcomes: tuple[Outcome, ...] = (
            (Skipped(blocked[obstacle]),) if obstacle else item.evaluate(facts)
        )
        root = next((name for name in item.follows_from if name in wrong), "")
        outcomes = tuple(_left_to(root, outcome) for outcome in outcomes)
        found = [_finding(item.id, outcome, suppressions) for outcome in outcomes]
        if reason := next(filter(None, map(_obstacle, found)), ""):
            blocked[item.id] = reason
        wrong |= {one.check for one in found if _is_error(one)}
        findings += found
    return tuple(findings)


def _left_to(root: str, outcome: Outcome) -> Outcome:
    """Return an outcome; a problem that follows from another finding is not told twice."""
    if root and isinstance(outcome, Problem):
        return Skipped(f"follows from {root}: {outcome.message}")
    return outcome


def _is_error(finding: Finding) -> bool:
    problem = finding.outcome
    is_error = isinstance(problem, Problem) and problem.severity is Severity.ERROR
    return is_error and not finding.suppressed


def _finding(check: str, outcome: Outcome, suppressions: Sequence[Suppression]) -> Finding:
    reason = next((item.reason for item in suppressions if _covers(item, check, outcome)), "")
    return Finding(check=check, outcome=outcome, suppressed=reason)


def _covers(suppression: Suppression, check: str, outcome: Outcome) -> bool:
    if suppression.check != check:
        return False
    if isinstance(outcome, Problem):
        return fnmatchcase(outcome.culprit, suppression.culprit)
    return isinstance(outcome, Crashed)


def _effect(suppressions: Sequence[Suppression], findings: Sequence[Finding]) -> SuppressionsFact:
    """Tell which suppressions had none; one whose check could not look may still be needed."""
    looked = {item.check for item in findings if not isinstance(item.outcome, Skipped)}
    idle = (
        item
        for item in suppressions
        if item.check in looked
        and not any(_covers(item, found.check, found.outcome) for found in findings)
    )
    return SuppressionsFact(given=tuple(suppressions), without_effect=tuple(idle))


def _obstacle(finding: Finding) -> str:
    """Say why dependants of a check cannot be judged; empty if they can."""
    if finding.suppressed:
        return ""
    match finding.outcome:
        case Ok():
            return ""
        case Skipped(reason):
            return reason
        case Problem(severity=severity):
            return f"{finding.check} has to be solved first" if severity is Severity.ERROR else ""
        case _:
            return f"{finding.check} crashed"


def select(checks: Sequence[Check], names: Iterable[str]) -> list[Check]:
    """Pick checks by id, with all they require.

    Args:
        checks: All checks.
        names: Ids to run; empty means all.

    Returns:
        The chosen checks, in their given order.

    Raises:
        UsageError: An id does not exist; the message lists the nearest.
    """
    known = {item.id: item for item in checks}
    names = list(names)
    for name in names:
        if name not in known:
            raise unknown_check(name, known)
    wanted: set[str] = set()
    queue = names or list(known)
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue += known[name].requires
    return [item for item in checks if item.id in wanted]


def unknown_check(name: str, known: Iterable[str], *, origin: str = "") -> UsageError:
    """Make the error for a check id that does not exist; `origin` says where it stands."""
    import difflib  # noqa: PLC0415  only needed on this path

    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3) or _sharing_a_word(name, known)
    return UsageError(
        f"{origin}{': ' if origin else ''}no check is named {name!r}",
        reference="unknown-check",
        hint=f"did you mean {', '.join(near)}?" if near else "`envdoctor explain` lists all checks",
    )


def _sharing_a_word(name: str, known: Iterable[str]) -> list[str]:
    """Return the ids that have most words of a name, at most five."""
    words = set(re.split(r"[^a-z0-9]+", name.lower())) - {"", "is", "not", "too", "no"}
    shared = {one: len(words & set(one.split("-"))) for one in known}
    best = max(shared.values(), default=0)
    return [one for one, number in shared.items() if number == best > 0][:5]
