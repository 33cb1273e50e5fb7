"""`envdoctor check`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.commands.options import (
    OutputFormat,
    PrefixOption,
    ProfileOption,
    PythonOption,
    chosen_prefix,
    chosen_profile,
)

if TYPE_CHECKING:
    from envdoctor.report import Report


def check(
    *,
    python: PythonOption = None,
    prefix: PrefixOption = None,
    profile: ProfileOption = None,
    output: Annotated[
        OutputFormat, typer.Option("--format", help="How to print.")
    ] = OutputFormat.TEXT,
    select: Annotated[
        list[str] | None, typer.Option(help="Run only this check and what it requires; repeatable.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Leave a check out; repeatable.")] = None,
    expect_gpu: Annotated[
        bool | None,
        typer.Option("--expect-gpu/--no-gpu", help="A missing GPU is an error / is fine."),
    ] = None,
    all_records: Annotated[
        bool, typer.Option("--all", help="Compare the files of every package, not only CUDA's.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also list what was looked at.")
    ] = False,
) -> None:
    """Find what is wrong with a Python environment, and name the command that cures it.

    Reads files only: never imports torch, never runs code of the environment it looks at. Without
    --python or --prefix it looks at the environment envdoctor is installed in.

    Exit code 0 if there is at most a warning, 1 if a problem was found.
    """
    from envdoctor.checks import BUILTIN_CHECKS
    from envdoctor.diagnose import diagnose
    from envdoctor.runner import select as choose

    report = diagnose(
        chosen_prefix(python, prefix),
        profile=chosen_profile(profile),
        expect_gpu=expect_gpu,
        checks=choose(BUILTIN_CHECKS, select or [], ignore or []),
        all_records=all_records,
    )
    print_report(report, output, verbose=verbose)
    raise typer.Exit(report.exit_code)


def print_report(report: Report, output: OutputFormat, *, verbose: bool = False) -> None:
    """Write a report to stdout."""
    if output is OutputFormat.JSON:
        import json

        json.dump(report.to_dict(), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    from envdoctor.render import report_lines, show

    show(report_lines(report, verbose=verbose))
