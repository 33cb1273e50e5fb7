"""`envdoctor lock`."""

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


def lock(
    *,
    profile: ProfileOption = "cpu",
    upgrade: Annotated[
        list[str] | None,
        typer.Option(help="Let only this package move, and keep all others; repeatable."),
    ] = None,
    wheels: WheelsOption = None,
    python: Annotated[
        str | None,
        typer.Option(help="Python to lock for: path, command or version; default: this one."),
    ] = None,
    uv: UvOption = None,
    no_wait: NoWaitOption = False,
) -> None:
    """Resolve a profile anew, write its lock beside it, and print what differs from before.

    There is one lock for each profile, Python minor version and platform, in `locks/` beside the
    profile's file. It names files by size and sha256, and no host. `envdoctor build` takes its
    packages from it while the profile asks for the same; with --locked it takes nothing else.

    Exit codes: 2 no such profile, 4 no set of packages fits, 5 a source cannot be reached, 8 a
    build runs (--no-wait), 9 no uv or Python.
    """
    from envdoctor import settings
    from envdoctor.build import BuildRequest
    from envdoctor.locking import folder_of
    from envdoctor.profile import load_profile
    from envdoctor.progress import Progress
    from envdoctor.relock import relock

    name = profile_name(profile or "cpu")
    request = BuildRequest(
        profile=load_profile(name),
        wheels=tuple(wheels or ()),
        python=python,
        uv=uv,
        locks=folder_of(name),
        wait=not no_wait,
    )
    done = relock(request, upgrade=upgrade or (), settings=settings.load(), talk=Progress())
    for one in done.differences:
        before, after = one.before or "-", one.after or "-"
        same = " (another file)" if before == after else ""
        typer.echo(f"{one.name}: {before} -> {after}{same}")
    if not done.differences:
        typer.echo("no package differs")
    typer.echo(done.path)
