"""`envdoctor envs`, and `path`, `rollback` and `run`, which work on the same environments."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", help="Profile by name or path; default: the one that was built last."
    ),
]

envs = typer.Typer(
    help="List, find and prune the environments that were built.", rich_markup_mode=None
)


class ListFormat(StrEnum):
    """How the environments are listed."""

    TEXT = "text"
    JSON = "json"


@envs.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """List, find and prune the environments that were built."""
    if context.invoked_subcommand is None:
        list_all()


@envs.command("list")
def list_all(
    *,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="Only those of this profile.")
    ] = None,
    output: Annotated[ListFormat, typer.Option("--format", help="How to print.")] = ListFormat.TEXT,
) -> None:
    """List the environments that were built, the newest of each profile first, and adopted."""
    from dataclasses import asdict

    from envdoctor import settings
    from envdoctor.commands.options import print_json
    from envdoctor.generations import listed

    loaded = settings.load()
    found = listed(loaded, profile)
    if output is ListFormat.JSON:
        print_json([asdict(one) for one in found])
        return
    if not found:
        typer.echo(f"nothing is built in {loaded.home}; `envdoctor build` builds", err=True)
    for one in found:
        role = f"{one.role or '-'}{', in use' if one.is_in_use else ''}"
        torch = one.torch or "no torch"
        typer.echo(f"{one.profile:<8} {role:<17} {one.built or '?':<25} {torch:<14} {one.path}")


@envs.command("path")
def path(*, profile: ProfileName = None) -> None:
    """Print the real folder of the current environment, which later builds do not change."""
    from envdoctor import settings
    from envdoctor.generations import current_of, place_of

    place = place_of(profile, settings.load())
    typer.echo(place.envs.resolve() / current_of(place))


@envs.command("sbom")
def sbom(*, profile: ProfileName = None) -> None:
    """Print what is in the current environment as a bill of materials (CycloneDX, JSON)."""
    from envdoctor import receipt, settings
    from envdoctor.commands.options import print_json
    from envdoctor.errors import VerificationError
    from envdoctor.generations import current_of, place_of
    from envdoctor.sbom import cyclonedx

    place = place_of(profile, settings.load())
    name = current_of(place)
    found = receipt.read(place.receipt(name))
    if found is None:
        raise VerificationError(
            f"{place.receipt(name)} cannot be read", reference="receipt-not-readable"
        )
    print_json(cyclonedx(found))


@envs.command("prune")
def prune(
    *,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="Only those of this profile.")
    ] = None,
    keep: Annotated[
        int, typer.Option(min=2, help="Environments of each profile that stay, newest first.")
    ] = 2,
) -> None:
    """Delete old environments; the current, the previous and those in use stay.

    An adopted environment is never deleted; one that is gone is forgotten.
    """
    from envdoctor import adoption, generations, settings, store

    loaded = settings.load()
    names = [profile] if profile else store.all_profiles(loaded.home)
    for place in [generations.place_of(name, loaded) for name in names]:
        before = place.generations()
        in_use = generations.prune(place, keep=keep)
        gone = [name for name in before if name not in place.generations()]
        typer.echo(f"{place.profile}: {len(gone)} deleted, {len(before) - len(gone)} kept")
        for name in in_use:
            typer.echo(f"{place.profile}: kept {name}: a job runs in it")
    for path in adoption.forget_gone(loaded.home):
        typer.echo(f"forgot {path}, which was adopted and is gone")


def rollback(*, profile: ProfileName = None) -> None:
    """Make the environment before the current one current again, if its files are complete.

    The one that was current becomes the previous one, so a second rollback undoes the first. Prints
    the folder. Exit codes: 1 nothing is built, or the previous one is damaged, 2 there is none, or
    no such profile, 8 a build runs.
    """
    from envdoctor import generations, settings

    typer.echo(generations.roll_back(generations.place_of(profile, settings.load())))


def run(
    command: Annotated[list[str], typer.Argument(help="Program and arguments, after `--`.")],
    *,
    profile: ProfileName = None,
) -> None:
    """Run a program in the current environment, which stays as it is until the program ends.

    It runs in the environment's real folder: builds and rollbacks meanwhile do not reach it. Exit
    code: that of the program; 1 nothing is built, 2 there is no such program.
    """
    from envdoctor import job, settings
    from envdoctor.progress import Progress

    code = job.run(command, profile=profile, settings=settings.load(), talk=Progress())
    raise typer.Exit(code)
