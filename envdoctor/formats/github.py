"""A report as workflow commands, which GitHub shows as annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.formats.printable import one_line
from envdoctor.render import closing_line
from envdoctor.verdict import Crashed, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.report import Report
    from envdoctor.verdict import Problem

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def workflow_commands(report: Report) -> Iterator[str]:
    """Yield one line for each problem, errors first, and a closing line.

    A step shows ten annotations of a kind at most; all lines stay in its log.

    Source: docs.github.com, "Workflow commands for GitHub Actions"; the escapes are those of
    actions/toolkit, packages/core/src/command.ts (read 2026-11-29).
    """
    for finding, problem in report.ranked():
        title = f"{finding.check}: {problem.culprit}"
        yield _command(_COMMANDS[problem.severity], title, _message(problem))
    for finding in report.findings:
        if isinstance(finding.outcome, Crashed) and not finding.suppressed:
            yield _command("error", finding.check, f"envdoctor failed: {finding.outcome.error}")
    for finding in report.unmet:
        yield _command("error", finding.check, "it is required, but was skipped")
    for text in report.environment.get("not_judged") or ():
        yield _command("notice", "not judged", text)
    yield one_line(closing_line(report).text)


def _message(problem: Problem) -> str:
    return "\n".join([problem.message, problem.remedy.text, *problem.remedy.commands])


def _command(name: str, title: str, message: str) -> str:
    text = "\n".join(one_line(line) for line in message.splitlines())
    return f"::{name} title={_property(one_line(title))}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\n", "%0A")  # one_line leaves no carriage return


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
