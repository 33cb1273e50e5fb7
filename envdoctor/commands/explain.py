"""`envdoctor explain`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envdoctor.check import Check


class PageFormat(StrEnum):
    """How pages are written to stdout."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def explain(
    name: Annotated[
        str | None, typer.Argument(help="Id of a check; without it all are listed.")
    ] = None,
    output: Annotated[PageFormat, typer.Option("--format", help="How to print.")] = PageFormat.TEXT,
) -> None:
    """Print the page of a check: what it checks, why it matters, remedy, source."""
    from envdoctor.checks import BUILTIN_CHECKS
    from envdoctor.runner import unknown_check

    if name is None:
        print_list(BUILTIN_CHECKS, output)
        return
    known = {item.id: item for item in BUILTIN_CHECKS}
    if name not in known:
        raise unknown_check(name, known)
    print_page(known[name], output)


def print_list(checks: Sequence[Check], output: PageFormat) -> None:
    """Write what checks there are to stdout."""
    from envdoctor.commands.options import print_json
    from envdoctor.formats.pages import page_data, table
    from envdoctor.render import list_lines, show

    if output is PageFormat.JSON:
        print_json([page_data(item) for item in checks])
    elif output is PageFormat.MARKDOWN:
        sys.stdout.write(table(checks))
    else:
        show(list_lines(checks))


def print_page(check: Check, output: PageFormat) -> None:
    """Write the page of a check to stdout."""
    from envdoctor.commands.options import print_json
    from envdoctor.formats.pages import page_data, page_markdown
    from envdoctor.render import check_lines, show

    if output is PageFormat.JSON:
        print_json(page_data(check))
    elif output is PageFormat.MARKDOWN:
        sys.stdout.write(page_markdown(check))
    else:
        show(check_lines(check))
