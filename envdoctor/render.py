"""Turn a report into lines for people."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, TextIO

from envdoctor.formats.printable import one_line
from envdoctor.value import value
from envdoctor.verdict import Crashed, Evidence, Ok, Outcome, Problem, Severity, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envdoctor.check import Check
    from envdoctor.report import Finding, Report

_GIB = 1024**3
_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.INFO: "i"}
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "cyan"}
_ACTORS = {"user": "", "image": "for whoever builds the image: ", "admin": "for the host's admin: "}

USUAL_SUSPECTS = (
    "driver-too-old-for-cuda",
    "gpu-arch-not-in-build",
    "package-files-damaged",
)
"""Checks whose `Ok` is worth saying beside an error: people reinstall these in vain."""


@value
class Line:
    """One line of output with a rich style, empty for plain."""

    text: str
    style: str = ""


def report_lines(report: Report, *, verbose: bool = False) -> Iterator[Line]:
    """Yield a report: heading, problems, what was looked at if verbose, one closing line.

    If all is well, the closing line alone says so.
    """
    body = [*_problems(report), *_crashes(report), *_scope(report)]
    if verbose:
        body += [*_loaded(report), Line(""), *_table(report)]
    if not body:
        yield _healthy(report)
        return
    yield from _heading(report)
    yield from body
    yield Line("")
    yield closing_line(report)


def closing_line(report: Report) -> Line:
    """Return the one line that sums a report up."""
    summary = report.to_dict()["summary"]
    looked = f"{_plural(summary['ok'], 'check')} ok, {summary['skipped']} skipped"
    if summary["suppressed"]:
        looked += f", {_plural(summary['suppressed'], 'problem')} suppressed"
    warnings = _plural(summary["warnings"], "warning")
    if report.exit_code:
        errors = summary["errors"] + summary["crashed"] + len(report.unmet)
        return Line(f"{_plural(errors, 'error')}, {warnings}; {looked}")
    if summary["warnings"]:
        return Line(f"no error, {warnings}; {looked}")
    if not summary["ok"] and not summary["notes"]:
        return Line(f"nothing was judged; {looked}", "yellow")
    if report.environment.get("not_judged"):
        return Line(f"no problem found in what was looked at; {looked}")
    return Line(f"no problem found; {looked}", "bold green")


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
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 has no marks
    safe = (Line(one_line(line.text), line.style) for line in lines)
    if not stream.isatty():
        stream.writelines(f"{line.text}\n" for line in safe)
        return
    from rich.console import Console  # noqa: PLC0415  0.1 s that a pipe need not pay

    # rich leaves out colours for NO_COLOR, but not bold print.
    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in safe:
        style = None if console.no_color else line.style or None
        console.print(line.text, style=style, markup=False)


def _healthy(report: Report) -> Line:
    torch = report.environment["torch"]
    line = closing_line(report)
    where = _where(report, f"torch {torch}" if torch else "no torch")
    return Line(f"{where}: {line.text}", line.style)


def _where(report: Report, more: str) -> str:
    facts = report.environment
    if not facts["prefix"]:
        return "unknown environment"
    return f"{facts['prefix']} (Python {facts['python']}, {more})"


def _heading(report: Report) -> Iterator[Line]:
    facts = report.environment
    where = _where(report, f"{facts['packages']} packages")
    yield Line(f"environment  {where}")
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


def _problems(report: Report) -> Iterator[Line]:
    for finding, problem in report.ranked():
        yield Line("")
        yield from _problem(problem, finding.check)
    # Where there is no torch, nobody suspects its parts.
    is_suspect = bool(report.environment["torch"]) and report.problems(Severity.ERROR)
    if is_suspect and (notes := list(_cleared(report))):
        yield Line("")
        yield Line(f"not the cause: {'; '.join(notes)}", "dim")
    for finding in report.unmet:
        yield Line("")
        text = f"✗ {finding.check} is required, but was skipped: {_said(finding)}"
        yield Line(text, "bold red")


def _cleared(report: Report) -> Iterator[str]:
    """Yield what people suspect first, where a check looked at it and found it right."""
    notes = {
        finding.check: finding.outcome.note
        for finding in report.findings
        if isinstance(finding.outcome, Ok) and finding.outcome.note
    }
    return (notes[name] for name in USUAL_SUSPECTS if name in notes)


def _crashes(report: Report) -> Iterator[Line]:
    for finding in report.findings:
        if isinstance(finding.outcome, Crashed) and not finding.suppressed:
            yield Line("")
            yield Line(f"✗ crashed  {finding.check}: {finding.outcome.error}", "bold red")
            yield Line("  This is a bug of envdoctor; the check said nothing.")


def _scope(report: Report) -> Iterator[Line]:
    texts = report.environment.get("not_judged") or ()
    if texts:
        yield Line("")
    yield from (Line(f"not judged   {text}", "yellow") for text in texts)


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


def _loaded(report: Report) -> Iterator[Line]:
    """Yield where each library really was loaded from."""
    paths = report.environment.get("loaded") or ()
    if paths:
        yield Line("")
    yield from (Line(f"loaded       {path}", "dim") for path in paths)


def _table(report: Report) -> Iterator[Line]:
    """Yield what was looked at: one row for each finding, in columns."""
    rows = [_row(finding) for finding in report.findings]
    outcome_width = max((len(row[0]) for row in rows), default=0)
    check_width = max((len(row[1]) for row in rows), default=0)
    for outcome, check, said, style in rows:
        text = f"  {outcome:<{outcome_width}}  {check:<{check_width}}  {said}"
        yield Line(text.rstrip(), style)


def _row(finding: Finding) -> tuple[str, str, str, str]:
    """Return a row of the table: outcome, check, what it said, style."""
    if finding.suppressed:
        return ("suppressed", finding.check, f"{_said(finding)} ({finding.suppressed})", "dim")
    word, style = _word(finding.outcome)
    return (word, finding.check, _said(finding), style)


def _word(outcome: Outcome) -> tuple[str, str]:
    """Return an outcome's word in the table and its style."""
    match outcome:
        case Ok():
            return "ok", "green"
        case Skipped():
            return "skipped", "dim"
        case Problem(severity=severity):
            return severity.value, _STYLES[severity]
        case Crashed():
            return "crashed", "bold red"


def _said(finding: Finding) -> str:
    """Return the text of an outcome; of a problem the culprit, as its text stands above."""
    match finding.outcome:
        case Ok(note):
            return note
        case Skipped(reason):
            return reason
        case Problem(culprit=culprit):
            return culprit
        case Crashed(error):
            return error


def _plural(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
