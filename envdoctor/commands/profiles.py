"""`envdoctor profiles`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

profiles = typer.Typer(help="List, show and validate profiles.", rich_markup_mode=None)


class ShowFormat(StrEnum):
    """How a profile is shown."""

    TOML = "toml"
    JSON = "json"


@profiles.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """List, show and validate profiles."""
    if context.invoked_subcommand is None:
        list_all()


@profiles.command("list")
def list_all() -> None:
    """List the bundled profiles with what each is for."""
    from envdoctor.profile import known_names, load_profile

    for name in known_names():
        profile = load_profile(name)
        torch = f"torch {profile.torch.version} {profile.torch.variant}"
        typer.echo(f"{name:<8} {torch:<22} {profile.description}")


@profiles.command("show")
def show(
    profile: Annotated[str, typer.Argument(help="Name, path of a TOML file, or `auto`.")],
    *,
    output: Annotated[ShowFormat, typer.Option("--format", help="How to print.")] = ShowFormat.TOML,
) -> None:
    """Print a profile with all that it inherits and every default."""
    import msgspec

    from envdoctor.commands.options import print_json, profile_name
    from envdoctor.profile import load_profile
    from envdoctor.toml_text import document
    from envdoctor.urls import mask

    found = msgspec.structs.replace(load_profile(profile_name(profile)), extends="")
    data = msgspec.json.decode(mask(msgspec.json.encode(found).decode()))
    if output is ShowFormat.JSON:
        print_json(data)
    else:
        typer.echo(document(data), nl=False)


@profiles.command("validate")
def validate(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names or paths; default: all that are bundled.")
    ] = None,
) -> None:
    """Tell whether profiles are valid; if one is not, name every problem and exit with 2."""
    from envdoctor.checks import BUILTIN_CHECKS
    from envdoctor.errors import UserFileError
    from envdoctor.profile import known_names, load_profile
    from envdoctor.suppressions import chosen_suppressions

    problems = []
    for name in names or known_names():
        try:
            found = load_profile(name)
            chosen_suppressions(found, (), BUILTIN_CHECKS)
        except UserFileError as error:
            problems.append(error.message)
        else:
            torch = f"torch {found.torch.version} {found.torch.variant}"
            typer.echo(f"{name}: valid, {found.name} with {torch}")
    if problems:
        raise UserFileError("\n".join(problems), reference="profile-not-valid")
