"""The command line: every command is listed here."""

from __future__ import annotations

from typing import Annotated

import typer

from envdoctor import __version__
from envdoctor.commands.build import build
from envdoctor.commands.check import check
from envdoctor.commands.diff import diff
from envdoctor.commands.envs import envs, path, rollback, run
from envdoctor.commands.explain import explain
from envdoctor.commands.facts import facts
from envdoctor.commands.fix import fix
from envdoctor.commands.lock import lock
from envdoctor.commands.profiles import profiles
from envdoctor.commands.train import train

app = typer.Typer(
    help="Find what is wrong with a PyTorch/CUDA environment, build a clean one, train in it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


for command in (check, fix, facts, diff, build, lock, train, path, rollback, explain):
    app.command()(command)
# What follows the program's name is the program's.
app.command(context_settings={"allow_interspersed_args": False})(run)
app.add_typer(envs, name="envs")
app.add_typer(profiles, name="profiles")
