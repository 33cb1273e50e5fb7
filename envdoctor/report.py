"""The report: what was found in one environment, with its JSON form."""

from __future__ import annotations

from dataclasses import asdict, field
from typing import Any

from envdoctor import __version__
from envdoctor.errors import ExitCode
from envdoctor.formats.printable import encodable_data
from envdoctor.value import keyword_value
from envdoctor.verdict import Crashed, Ok, Outcome, Problem, Severity, Skipped

SCHEMA_VERSION = 1


@keyword_value
class Finding:
    """A check's id with one outcome.

    Args:
        check: The check's id.
        outcome: What it said.
        suppressed: Why a problem or crash does not count; empty if it counts.
    """

    check: str
    outcome: Outcome
    suppressed: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON-able data; every finding has the same keys."""
        entry: dict[str, Any] = {
            "check": self.check,
            "outcome": outcome_name(self.outcome),
            "severity": None,
            "culprit": None,
            "owner": None,
            "message": "",
            "evidence": [],
            "remedy": None,
            "suppressed": self.suppressed or None,
        }
        match self.outcome:
            case Ok(note):
                entry["message"] = note
            case Skipped(reason):
                entry["message"] = reason
            case Crashed(error):
                entry["message"] = error
            case Problem() as problem:
                entry |= asdict(problem)
                entry["severity"] = problem.severity.value
        return entry


def outcome_name(outcome: Outcome) -> str:
    """Return the outcome's public name: ok, problem, skipped or crashed."""
    match outcome:
        case Ok():
            return "ok"
        case Skipped():
            return "skipped"
        case Problem():
            return "problem"
        case Crashed():
            return "crashed"


@keyword_value
class Report:
    """The findings about one environment.

    Args:
        environment: Facts for the heading: prefix, python, torch, driver.
        findings: In the order of the checks.
        required: Ids of checks that must not be skipped.
    """

    environment: dict[str, Any]
    findings: tuple[Finding, ...]
    required: frozenset[str] = field(default_factory=frozenset)

    def ranked(self) -> list[tuple[Finding, Problem]]:
        """Return the problems that count with their findings, errors first."""
        order = list(Severity)
        found = [
            (finding, finding.outcome)
            for finding in self.findings
            if isinstance(finding.outcome, Problem) and not finding.suppressed
        ]
        return sorted(found, key=lambda pair: order.index(pair[1].severity))

    def problems(self, severity: Severity | None = None) -> list[Problem]:
        """Return the problems that count, errors first, of one severity or all."""
        return [problem for _, problem in self.ranked() if severity in (None, problem.severity)]

    def count(self, name: str) -> int:
        """Return how many findings that count have an outcome of the given public name."""
        return sum(
            outcome_name(item.outcome) == name for item in self.findings if not item.suppressed
        )

    @property
    def unmet(self) -> list[Finding]:
        """Required checks that said nothing: a skip must not pass for health."""
        return [
            item
            for item in self.findings
            if item.check in self.required and isinstance(item.outcome, Skipped)
        ]

    @property
    def exit_code(self) -> ExitCode:
        """OK with at most warnings, else PROBLEM."""
        failed = self.problems(Severity.ERROR) or self.count("crashed") or self.unmet
        return ExitCode.PROBLEM if failed else ExitCode.OK

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able data with its schema version."""
        document: dict[str, Any] = encodable_data(
            {
                "schema_version": SCHEMA_VERSION,
                "envdoctor_version": __version__,
                "environment": self.environment,
                "summary": {
                    "exit_code": int(self.exit_code),
                    "errors": len(self.problems(Severity.ERROR)),
                    "warnings": len(self.problems(Severity.WARNING)),
                    "notes": len(self.problems(Severity.INFO)),
                    "ok": self.count("ok"),
                    "skipped": self.count("skipped"),
                    "crashed": self.count("crashed"),
                    "suppressed": sum(bool(item.suppressed) for item in self.findings),
                },
                "findings": [item.to_dict() for item in self.findings],
            }
        )
        return document
