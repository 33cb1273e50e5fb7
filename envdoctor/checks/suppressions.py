"""Checks of the suppressions themselves."""

from __future__ import annotations

from envdoctor.check import check, problems
from envdoctor.facts import Suppression, SuppressionsFact
from envdoctor.verdict import Ok, Problem, Remedy, Severity, Skipped, Verdict


@check()
def suppression_without_effect(suppressions: SuppressionsFact) -> Verdict:
    """A suppression suppresses nothing.

    ## What it checks
    Each entry of the profile's `[check] ignore` and each `--ignore`, against what the other checks
    reported. An entry whose check could not look here is left alone.

    ## Why it matters
    The problem it was written for is gone. Left in place it would hide the next problem of that
    kind, which may be another one.

    ## Remedy
    Remove it.

    ## Source
    The habit of cargo-deny, which reports allow entries that nothing needs.
    """
    if not suppressions.given:
        return Skipped("nothing is suppressed")
    found = [_problem(item) for item in suppressions.without_effect]
    return problems(found, otherwise=Ok(f"{len(suppressions.given)} suppressions are in use"))


def _problem(item: Suppression) -> Problem:
    meant = item.check if item.culprit == "*" else f"{item.check} for {item.culprit}"
    return Problem(
        culprit=item.check,
        severity=Severity.INFO,
        message=f"{item.origin} suppresses {meant}, which is no problem here ({item.reason})",
        remedy=Remedy(kind="config-change", text=f"Remove it from {item.origin}."),
    )
