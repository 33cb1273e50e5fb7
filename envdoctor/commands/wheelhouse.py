"""`envdoctor wheelhouse`: the wheels that were fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envdoctor.commands.options import NoWaitOption, UvOption, WheelsOption, profile_name

wheelhouse = typer.Typer(
    help="List and prune the wheels that were fetched; carry them to other machines.",
    rich_markup_mode=None,
)


@wheelhouse.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """List and prune the wheels that were fetched; carry them to other machines."""
    if context.invoked_subcommand is None:
        list_all()


@wheelhouse.command("list")
def list_all() -> None:
    """List every wheel in ENVDOCTOR_HOME/wheels, with the profiles whose environments need it."""
    from envdoctor import settings
    from envdoctor.wheel_users import users_of_wheels
    from envdoctor.wheelhouse import Wheelhouse

    home = settings.load().home
    users = users_of_wheels(home)
    total = 0
    for one in Wheelhouse(home / "wheels").listed():
        total += one.size
        names = ", ".join(sorted(users.get(one.sha256, ()))) or "-"
        typer.echo(f"{one.size / 10**6:>8.1f} MB  {one.sha256[:12]}  {names:<20} {one.path.name}")
    typer.echo(f"{total / 10**6:>8.1f} MB")


@wheelhouse.command("prune")
def prune() -> None:
    """Delete wheels that no environment and no imported lock needs, and unfinished downloads.

    Exit code 8: a build works with them.
    """
    from envdoctor import settings
    from envdoctor.wheel_users import users_of_wheels
    from envdoctor.wheelhouse import Wheelhouse

    home = settings.load().home
    house = Wheelhouse(home / "wheels")
    with house.used(alone=True):
        gone = house.prune(users_of_wheels(home))
    size = sum(one.size for one in gone)
    typer.echo(f"{len(gone)} files deleted, {size / 10**6:.1f} MB")


@wheelhouse.command("export")
def export(
    profile: Annotated[
        str, typer.Argument(help="Profile by name, path of a TOML file, or `auto`.")
    ],
    target: Annotated[Path, typer.Argument(help="A file ending in .tar, or a folder.")],
    *,
    wheels: WheelsOption = None,
    python: Annotated[
        str | None,
        typer.Option(help="Python to export for: path, command or version; default: this one."),
    ] = None,
    uv: UvOption = None,
    locked: Annotated[
        bool, typer.Option("--locked", help="Take nothing but what the profile's lock names.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no network.")] = False,
    no_wait: NoWaitOption = False,
) -> None:
    """Write a profile's lock and all its wheels, fetching those that are not here.

    On the other machine, with the same Python minor version and the same profile, run `envdoctor
    wheelhouse import TARGET`, then `envdoctor build --profile NAME --offline`.

    Exit codes: those of `envdoctor build`.
    """
    from envdoctor import settings
    from envdoctor.build import BuildRequest
    from envdoctor.bundle import export as run
    from envdoctor.locking import folder_of
    from envdoctor.profile import load_profile
    from envdoctor.progress import Progress

    name = profile_name(profile)
    request = BuildRequest(
        profile=load_profile(name),
        wheels=tuple(wheels or ()),
        python=python,
        uv=uv,
        locks=folder_of(name),
        locked=locked,
        offline=offline,
        wait=not no_wait,
    )
    number = run(request, target, settings=settings.load(), talk=Progress())
    typer.echo(f"{number} wheels and their lock are in {target}")


@wheelhouse.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="What `envdoctor wheelhouse export` wrote.")],
) -> None:
    """Take in wheels and their lock, once each file has the hash that the lock names.

    Exit codes: 2 there is no such file or it has no valid lock, 6 a wheel is missing or is not what
    the lock says, 7 no space.
    """
    from envdoctor import settings
    from envdoctor.bundle import bring_in
    from envdoctor.progress import Progress
    from envdoctor.talk import Stages
    from envdoctor.wheelhouse import Wheelhouse

    house = Wheelhouse(settings.load().home / "wheels")
    done = bring_in(source, house, Stages(Progress()))
    typer.echo(
        f"{done.num_wheels} wheels of {done.lock.name}, {done.num_new} of them new; "
        f"now: envdoctor build --profile {done.profile} --offline"
    )
