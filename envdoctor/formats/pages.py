"""The pages of checks, whole or as a table, for `envdoctor explain` and for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envdoctor.check import HEADINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envdoctor.check import Check

_KEYS = ("what", "why", "remedy", "source")


def sections(check: Check) -> dict[str, str]:
    """Return the sections of a page by short name: what, why, remedy, source."""
    starts = [check.explanation.index(heading) for heading in HEADINGS]
    ends = [*starts[1:], len(check.explanation)]
    parts = zip(_KEYS, HEADINGS, starts, ends, strict=True)
    return {
        key: check.explanation[start + len(heading) : end].strip()
        for key, heading, start, end in parts
    }


def page_data(check: Check) -> dict[str, Any]:
    """Return the page of a check as JSON-able data."""
    return {
        "id": check.id,
        "family": family(check),
        "title": check.title,
        **sections(check),
        "requires": list(check.requires),
        "follows_from": list(check.follows_from),
        "reads": [kind.__name__ for _, kind in check.reads],
    }


def page_markdown(check: Check) -> str:
    """Return the page of a check as Markdown, its id as the heading."""
    return f"# {check.id}\n\n{check.explanation}\n"


def table(checks: Iterable[Check]) -> str:
    """Return the table of checks as Markdown, in the order in which they run."""
    rows = [f"| `{check.id}` | {family(check)} | {_cell(check.title)} |" for check in checks]
    return "\n".join(["| check | family | finds |", "| --- | --- | --- |", *rows]) + "\n"


def family(check: Check) -> str:
    """Return the name of the module that holds a check."""
    return check.function.__module__.rpartition(".")[2]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
