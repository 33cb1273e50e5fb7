"""A report as SARIF, the format of code scanning services.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0" with errata 01;
section numbers below are its own.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from envdoctor import __version__
from envdoctor.formats.pages import sections
from envdoctor.formats.printable import encodable_data
from envdoctor.verdict import Crashed, Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from envdoctor.check import Check
    from envdoctor.report import Finding, Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_BASE = "ENVIRONMENT"
_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Lone surrogates that stand for no byte of a file's name (PEP 383 uses U+DC80 to U+DCFF)."""


def to_sarif(report: Report, checks: Sequence[Check]) -> dict[str, Any]:
    """Return a report as a SARIF log with one run.

    Args:
        report: What was found.
        checks: The checks that may be named in it; those that ran become its rules.
    """
    ran = {finding.check for finding in report.findings}
    rules = [check for check in checks if check.id in ran]
    prefix = report.environment.get("prefix")
    driver = {"name": "envdoctor", "version": __version__, "rules": [_rule(rule) for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "utf16CodeUnits",
        "invocations": [_invocation(report)],
        "results": list(_results(report, [rule.id for rule in rules])),
    }
    if prefix:
        run["originalUriBaseIds"] = {_BASE: {"uri": f"file://{_quoted(prefix)}/"}}
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    cleaned: dict[str, Any] = encodable_data(log)
    return cleaned


def _rule(check: Check) -> dict[str, Any]:
    page = sections(check)
    return {
        "id": check.id,
        "shortDescription": {"text": check.title},
        "fullDescription": {"text": page["what"]},
        "help": {"text": check.explanation, "markdown": check.explanation},
    }


def _results(report: Report, rules: list[str]) -> Iterator[dict[str, Any]]:
    """Yield one result a problem; suppressed ones say so (3.27.23)."""
    prefix = report.environment.get("prefix") or ""
    for finding in report.findings:
        if not isinstance(finding.outcome, Problem):
            continue
        result = _result(finding.check, finding.outcome, prefix)
        if finding.check in rules:
            result["ruleIndex"] = rules.index(finding.check)
        if finding.suppressed:
            result["suppressions"] = [{"kind": "external", "justification": finding.suppressed}]
        yield result


def _result(check: str, problem: Problem, prefix: str) -> dict[str, Any]:
    remedy = problem.remedy
    text = "\n".join([problem.message, remedy.text, *remedy.commands])
    digest = hashlib.sha256(f"{check}\n{problem.culprit}".encode(errors="replace")).hexdigest()
    return {
        "ruleId": check,
        "level": _LEVELS[problem.severity],
        "message": {"text": text},
        "locations": [_location(problem, prefix)],
        "partialFingerprints": {"checkAndCulprit/v1": digest},
        "properties": {
            "culprit": problem.culprit,
            "owner": problem.owner,
            "remedy": {"kind": remedy.kind, "commands": list(remedy.commands)},
            "evidence": [
                {"subject": item.subject, "expected": item.expected, "found": item.found}
                for item in problem.evidence
            ],
        },
    }


def _location(problem: Problem, prefix: str) -> dict[str, Any]:
    """Return where a problem is: a file if one is named, else the environment's folder."""
    named = [problem.culprit, *(item.subject for item in problem.evidence)]
    path = next((text for text in named if os.path.isabs(text)), prefix)  # noqa: PTH117  text only
    inside = path == prefix or path.startswith(f"{prefix}/")
    if prefix and inside:
        # 3.4.4: relative to the base; a folder's URI ends in a slash.
        uri = _quoted(path[len(prefix) + 1 :]) or "./"
        artifact = {"uri": uri, "uriBaseId": _BASE}
    else:
        artifact = {"uri": f"file://{_quoted(path)}" if path else "./"}
    return {
        "physicalLocation": {"artifactLocation": artifact},
        "logicalLocations": [{"fullyQualifiedName": problem.culprit}],
    }


def _quoted(path: str) -> str:
    # Bytes that are no text come back as they were; a snapshot may hold surrogates that are none.
    return quote(os.fsencode(_NO_BYTE.sub("\N{REPLACEMENT CHARACTER}", path)))


def _invocation(report: Report) -> dict[str, Any]:
    """Return how the run went (3.20): checks that crashed, were required but skipped, the scope."""
    notes = [_crash(finding) for finding in report.findings if isinstance(finding.outcome, Crashed)]
    notes += [
        _notification("error", f"{finding.check} is required, but was skipped", finding.check)
        for finding in report.unmet
    ]
    notes += [
        _notification("note", f"not judged: {text}")
        for text in report.environment.get("not_judged") or ()
    ]
    return {
        "executionSuccessful": not report.count("crashed"),
        "exitCode": int(report.exit_code),
        "toolExecutionNotifications": notes,
    }


def _crash(finding: Finding) -> dict[str, Any]:
    error = finding.outcome.error if isinstance(finding.outcome, Crashed) else ""
    return _notification("error", f"{finding.check} crashed: {error}", finding.check)


def _notification(level: str, text: str, check: str = "") -> dict[str, Any]:
    entry: dict[str, Any] = {"level": level, "message": {"text": text}}
    return entry | ({"associatedRule": {"id": check}} if check else {})
