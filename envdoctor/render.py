"""Turn a report into lines for people."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from envdoctor.verdict import Crashed, Evidence, Ok, Problem, Severity, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envdoctor.check import Check
    from envdoctor.report import Finding, Report

_GIB = 1024**3
_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.INFO: "i"}
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "cyan"}
_ACTORS = {"user": "", "image": "for whoever builds the image: ", "admin": "for the host's admin: "}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output with a rich style, empty for plain."""

    text: str
    style: str = ""


def report_lines(report: Report, *, verbose: bool = False) -> Iterator[Line]:
    """Yield a report: heading, problems, what was looked at if verbose, one closing line."""
    yield from _heading(report)
    for problem, finding in _problems(report):
        yield Line("")
        yield from _problem(problem, finding.check)
    for finding in report.findings:
        if isinstance(finding.outcome, Crashed):
            yield Line("")
            yield Line(f"✗ crashed  {finding.check}: {finding.outcome.error}", "bold red")
            yield Line("  This is a bug of envdoctor; the check said nothing.")
    yield Line("")
    if verbose:
        yield from (_looked_at(finding) for finding in report.findings)
        yield Line("")
    yield from _unmet(report)
    yield _closing(report)


def check_lines(check: Check) -> Iterator[Line]:
    """Yield the page of one check."""
    yield Line(check.id, "bold")
    for text in check.explanation.splitlines():
        heading = text.startswith("## ")
        yield Line(text.removeprefix("## ") if heading else text, "bold" if heading else "")


def list_lines(checks: Iterable[Check]) -> Iterator[Line]:
    """Yield one line a check: id and title."""
    checks = list(checks)
    width = max(len(check.id) for check in checks)
    yield from (Line(f"{check.id:<{width}}  {check.title}") for check in checks)


def show(lines: Iterable[Line], stream: TextIO | None = None) -> None:
    """Write lines to a stream, with colour only on a terminal that wants it."""
    stream = stream or sys.stdout
    if not stream.isatty():
        stream.writelines(f"{line.text}\n" for line in lines)
        return
    from rich.console import Console  # noqa: PLC0415  0.1 s that a pipe need not pay

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line.text, style=line.style or None, markup=False)


def _heading(report: Report) -> Iterator[Line]:
    facts = report.environment
    yield Line(
        f"environment  {facts['prefix']} (Python {facts['python']}, {facts['packages']} packages)"
    )
    if facts["torch"]:
        arch = f" ({' '.join(facts['arch'])})" if facts["arch"] else ""
        yield Line(f"torch        {facts['torch']}{arch}")
    yield Line(f"machine      {_machine(report)}")


def _machine(report: Report) -> str:
    facts = report.environment
    host = facts["host"] or {}
    parts = [host.get("machine") or "unknown machine"]
    if host.get("glibc"):
        parts.append(f"glibc {host['glibc']}")
    for key, label in (("shm_bytes", "/dev/shm"), ("disk_free_bytes", "free disk")):
        if host.get(key) is not None:
            parts.append(f"{label} {host[key] / _GIB:.1f} GiB")
    parts.append(f"driver {facts['driver']}" if facts["driver"] else "no NVIDIA driver")
    return ", ".join([*parts, *(facts["gpus"] or [])])


def _problems(report: Report) -> list[tuple[Problem, Finding]]:
    order = list(Severity)
    found = [(item.outcome, item) for item in report.findings if isinstance(item.outcome, Problem)]
    return sorted(found, key=lambda pair: order.index(pair[0].severity))


def _problem(problem: Problem, check: str) -> Iterator[Line]:
    severity = problem.severity
    yield Line(f"{_MARKS[severity]} {severity.value}  {check}", _STYLES[severity])
    yield Line(f"  {problem.message}")
    if len(problem.evidence) > 1:
        yield from (Line(f"    {_evidence_text(item)}") for item in problem.evidence)
    yield Line(f"  {_ACTORS[problem.owner]}{problem.remedy.text}")
    yield from (Line(f"    {command}", "bold") for command in problem.remedy.commands)


def _evidence_text(item: Evidence) -> str:
    expected = f" (expected {item.expected})" if item.expected else ""
    return f"{item.subject}: {item.found}{expected}"


def _looked_at(finding: Finding) -> Line:
    match finding.outcome:
        case Ok(note):
            return Line(f"  ok       {finding.check}: {note}", "green")
        case Skipped(reason):
            return Line(f"  skipped  {finding.check}: {reason}", "dim")
        case Problem(severity=severity):
            return Line(f"  {severity.value:<8} {finding.check}", _STYLES[severity])
        case Crashed(error):
            return Line(f"  crashed  {finding.check}: {error}", "bold red")


def _unmet(report: Report) -> Iterator[Line]:
    for finding in report.unmet:
        yield Line(f"✗ {finding.check} is required but was skipped", "bold red")


def _closing(report: Report) -> Line:
    summary = report.to_dict()["summary"]
    looked = f"{summary['ok']} checks ok, {summary['skipped']} skipped"
    if report.exit_code:
        errors = summary["errors"] + summary["crashed"] + len(report.unmet)
        return Line(
            f"{_plural(errors, 'error')}, {_plural(summary['warnings'], 'warning')}; {looked}"
        )
    if summary["warnings"]:
        return Line(f"no error, {_plural(summary['warnings'], 'warning')}; {looked}")
    return Line(f"no problem found; {looked}", "bold green")


def _plural(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
