"""`envdoctor explain`."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    name: Annotated[
        str | None, typer.Argument(help="Id of a check; without it all are listed.")
    ] = None,
) -> None:
    """Print the page of a check: what it checks, why it matters, remedy, source."""
    from envdoctor.checks import BUILTIN_CHECKS
    from envdoctor.render import check_lines, list_lines, show
    from envdoctor.runner import unknown_check

    if name is None:
        show(list_lines(BUILTIN_CHECKS))
        return
    known = {item.id: item for item in BUILTIN_CHECKS}
    if name not in known:
        raise unknown_check(name, known)
    show(check_lines(known[name]))
