"""`envdoctor train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envdoctor.commands.options import ProfileOption, profile_name


def train(
    *,
    config: Annotated[Path, typer.Option("--config", "-c", help="Run file (TOML).")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; default: runs/NAME-TIME.")
    ] = None,
    env: Annotated[
        Path | None, typer.Option(help="Train in this environment instead of a built one.")
    ] = None,
    profile: ProfileOption = None,
) -> None:
    """Train a DFlash drafter in an environment that passes its checks.

    Takes the environment that was built last, that of --profile, or the one --env names. If it does
    not pass, prints the report and trains nothing. Otherwise runs `python -m train` in it. Ctrl-C
    saves a checkpoint and stops; a second one stops at once.

    Exit codes: those of the trainer; 1 the environment does not pass, 2 the run file is not valid,
    130 interrupted.
    """
    from envdoctor import settings
    from envdoctor.launch import TrainRequest
    from envdoctor.launch import train as run
    from envdoctor.progress import Progress

    wanted = profile_name(profile) if profile else None
    request = TrainRequest(config=config, out=out, env=env, profile=wanted)
    raise typer.Exit(run(request, settings=settings.load(), talk=Progress()))
