"""The command line: parse, call one function, render, exit."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor import __version__
from envdoctor.errors import UsageError

if TYPE_CHECKING:
    from envdoctor.profile import Profile
    from envdoctor.report import Report

app = typer.Typer(
    help="Find what is wrong with a PyTorch/CUDA environment, build a clean one, train in it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class OutputFormat(StrEnum):
    """How a report is written to stdout."""

    TEXT = "text"
    JSON = "json"


@app.callback(invoke_without_command=True)
def root(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Find what is wrong with a PyTorch/CUDA environment, build a clean one, train in it.

    Exit codes: 0 fine, 1 problems found, 2 wrong usage or file, 3 envdoctor failed, 4 no set of
    packages fits, 5 source unreachable, 6 integrity, 7 space, 8 busy, 9 uv or Python, 130
    interrupted.
    """
    if version:
        typer.echo(f"envdoctor {__version__}")
        raise typer.Exit


ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", help="Profile by name (cpu, cu128, ...) or path of a TOML file."
    ),
]
PythonOption = Annotated[
    str | None, typer.Option(help="Look at the environment of this interpreter.")
]
PrefixOption = Annotated[Path | None, typer.Option(help="Look at the environment in this folder.")]


@app.command()
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
        _prefix(python, prefix),
        profile=_profile(profile),
        expect_gpu=expect_gpu,
        checks=choose(BUILTIN_CHECKS, select or [], ignore or []),
        all_records=all_records,
    )
    _print(report, output, verbose=verbose)
    raise typer.Exit(report.exit_code)


@app.command()
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


def _prefix(python: str | None, prefix: Path | None) -> Path:
    from envdoctor.probes.interpreter import checked_prefix, prefix_of_python, running_prefix

    if python is not None and prefix is not None:
        raise UsageError(
            "--python and --prefix name two environments",
            reference="two-environments",
            hint="give one of them",
        )
    if prefix is not None:
        return checked_prefix(prefix)
    return prefix_of_python(python) if python is not None else running_prefix()


def _profile(name: str | None) -> Profile | None:
    if name is None:
        return None
    from envdoctor.profile import load_profile

    return load_profile(name)


def _print(report: Report, output: OutputFormat, *, verbose: bool = False) -> None:
    if output is OutputFormat.JSON:
        import json

        json.dump(report.to_dict(), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    from envdoctor.render import report_lines, show

    show(report_lines(report, verbose=verbose))
