"""`envdoctor build`."""

from __future__ import annotations

from typing import Annotated

import typer

from envdoctor.commands.options import (
    NoWaitOption,
    ProfileOption,
    UvOption,
    WheelsOption,
    profile_name,
)


def build(
    *,
    profile: ProfileOption = "cpu",
    wheels: WheelsOption = None,
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Requirement to add to the profile's, which hold as they are; repeatable.",
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="Python to build on: path, command or version; default: this one."),
    ] = None,
    uv: UvOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Build anew what is already there and good.")
    ] = False,
    locked: Annotated[
        bool,
        typer.Option("--locked", help="Take nothing but what the profile's lock names."),
    ] = False,
    no_wait: NoWaitOption = False,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline",
            help="Ask no network: take wheels that were fetched or imported, and local folders.",
        ),
    ] = False,
) -> None:
    """Build a clean environment from a profile, verify it, and only then put it in place.

    The environment lands in ENVDOCTOR_HOME/envs/PROFILE/current (default home:
    ~/.local/share/envdoctor), with a receipt beside it. The one that was there before stays until
    the new one has passed, and survives any failure. Prints the environment's folder.

    Packages are those of the profile's lock while that is fresh and a source has its files. Each
    wheel is fetched once and kept in ENVDOCTOR_HOME/wheels (see `envdoctor wheelhouse`); a download
    that is interrupted goes on where it ended, and a file that one source gives wrongly or not at
    all is asked of the others.

    Exit codes: 1 it was built but did not pass, 2 no such profile or no fresh lock, 4 no set of
    packages fits, 5 a source cannot be reached, 6 a hash is wrong, 7 no space, 8 another build
    runs (--no-wait), 9 no uv or Python, 130 interrupted.
    """
    from envdoctor import settings
    from envdoctor.build import BuildRequest
    from envdoctor.build import build as run
    from envdoctor.locking import folder_of
    from envdoctor.profile import load_profile, reference, with_requirements
    from envdoctor.progress import Progress

    name = profile_name("cpu" if profile is None else profile)
    request = BuildRequest(
        profile=with_requirements(load_profile(name), more or ()),
        asked=reference(name),
        added=tuple(more or ()),
        wheels=tuple(wheels or ()),
        python=python,
        uv=uv,
        force=force,
        locks=folder_of(name),
        locked=locked,
        wait=not no_wait,
        offline=offline,
    )
    built = run(request, settings=settings.load(), talk=Progress())
    typer.echo(built.current)
