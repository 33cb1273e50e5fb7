"""`envdoctor diff`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envdoctor.errors import ExitCode, UsageError, UserFileError

if TYPE_CHECKING:
    from envdoctor.states import State

_SOURCE = "Snapshot (of `envdoctor facts`), receipt (of `envdoctor build`), or environment."


class DiffFormat(StrEnum):
    """How a comparison is written to stdout."""

    TEXT = "text"
    JSON = "json"


def diff(
    before: Annotated[Path, typer.Argument(help=f"When it worked. {_SOURCE}")],
    after: Annotated[Path, typer.Argument(help=f"Now. {_SOURCE}")],
    *,
    output: Annotated[DiffFormat, typer.Option("--format", help="How to print.")] = DiffFormat.TEXT,
) -> None:
    """Tell what changed between two states, most suspicious first.

    Compares what both tell: packages, files that are not as installed, where libraries come from,
    driver, GPUs, variables, host. What only one tells is named.

    Exit code 0 if nothing changed, 1 if something did, as diff(1) has it.
    """
    from envdoctor.commands.options import print_json
    from envdoctor.diff import compare
    from envdoctor.formats.difference import difference_lines
    from envdoctor.render import show

    found = compare(*_read_all(before, after))
    if output is DiffFormat.JSON:
        print_json(found.to_dict())
    else:
        show(difference_lines(found))
    raise typer.Exit(ExitCode.PROBLEM if found.changes else ExitCode.OK)


def _read_all(*paths: Path) -> list[State]:
    """Return the state that each path tells; of those that tell none, name all.

    Raises:
        UsageError: As of `read_state`, one line for each.
    """
    states, problems = [], []
    for path in paths:
        try:
            states.append(read_state(path))
        except UsageError as error:
            problems.append(error)
    if problems:
        first = problems[0]
        lines = "\n".join(problem.message for problem in problems)
        raise UsageError(lines, reference=first.reference, hint=first.hint)
    return states


def read_state(path: Path) -> State:
    """Return the state that a file or folder tells.

    Raises:
        UsageError: There is none, or a folder that is no environment.
        UserFileError: The file is neither a snapshot nor a receipt.
    """
    from envdoctor.states import state_of_facts, state_of_receipt

    if path.is_dir():
        from envdoctor.diagnose import Place, gather
        from envdoctor.facts import PolicyFact
        from envdoctor.probes.interpreter import checked_prefix

        found = gather(Place(prefix=checked_prefix(path)), PolicyFact())
        return state_of_facts(found, name=str(path))
    data = _read_json(path)
    if "facts" in data:
        from envdoctor.facts.snapshot import from_data

        return state_of_facts(from_data(data, source=str(path)), name=str(path))
    if "generation" in data:
        return state_of_receipt(_receipt(data, path), name=str(path))
    raise UserFileError(
        f"{path}: neither a snapshot nor a receipt",
        reference="state-invalid",
        hint="`envdoctor facts > FILE` writes a snapshot",
    )


def _read_json(path: Path) -> dict[str, Any]:
    import json

    from envdoctor import user_files

    content = user_files.read(
        path, reference="state-not-found", limit_bytes=256 * user_files.MIB, may_be_stream=True
    )
    try:
        data = json.loads(content)
    # json raises ValueError for bad UTF-8 as well, RecursionError for deep nesting
    except (ValueError, RecursionError) as error:
        raise UserFileError(f"{path}: not JSON: {error}", reference="state-invalid") from None
    return data if isinstance(data, dict) else {}


def _receipt(data: dict[str, Any], path: Path) -> Any:
    import msgspec

    from envdoctor.receipt import Receipt

    try:
        return msgspec.convert(data, Receipt)
    except msgspec.ValidationError as error:
        raise UserFileError(f"{path}: no receipt: {error}", reference="state-invalid") from None
