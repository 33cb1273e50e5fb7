"""The command line: every command is listed here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from envdoctor import __version__
from envdoctor.errors import UsageError

if TYPE_CHECKING:
    from typer._click import Command, Context  # typer ships click as a module of its own

COMMANDS = {
    "check": "check",
    "fix": "fix",
    "facts": "facts",
    "diff": "diff",
    "build": "build",
    "adopt": "adopt",
    "lock": "lock",
    "train": "train",
    "path": "envs",
    "rollback": "envs",
    "explain": "explain",
    "run": "envs",
    "envs": "envs",
    "cache": "cache",
    "wheelhouse": "wheelhouse",
    "profiles": "profiles",
}
"""Commands in the order of the help, with the module of `envdoctor.commands` that has each."""

# What follows the name of a program, or of a command of the trainer, is its own.
_SETTINGS = {name: {"allow_interspersed_args": False} for name in ("run", "train")}


class Commands(TyperGroup):
    """Imports and builds a command when it is asked for: a tenth of the time `check` takes."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return a command, or None if there is none of the name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"envdoctor.commands.{COMMANDS[cmd_name]}")
        found = getattr(module, cmd_name)
        if isinstance(found, typer.Typer):
            command: Command = get_group(found)
        else:
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name, context_settings=_SETTINGS.get(cmd_name))(found)
            command = get_command(single)
        command.name = cmd_name
        return command

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Refuse empty arguments: a variable that is not set must not mean this folder."""
        is_others = args[:1] == ["run"] or (
            args[:1] == ["train"] and {"-c", "--config"}.isdisjoint(args)
        )
        own = args[:1] if is_others else args  # the rest may be another program's
        own = own[: own.index("--")] if "--" in own else own
        for before, argument in zip(["", *own], own, strict=False):
            if not argument or (argument.startswith("--") and argument.endswith("=")):
                after = argument.rstrip("=") or (before if before.startswith("-") else "")
                where = f"{after}: found nothing" if after else "found an empty argument"
                raise UsageError(f"{where}, wanted a value", reference="empty-argument")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find the command that arguments name; for one that is none, say which are near."""
        if args and args[0] not in COMMANDS:
            found = {name: self.get_command(ctx, name) for name in COMMANDS}
            self.commands = {name: command for name, command in found.items() if command}
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
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
