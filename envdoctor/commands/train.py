"""`envdoctor train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envdoctor.commands.options import ProfileOption, profile_name


def train(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUB-COMMAND [ARGUMENTS]...]", help="What to do instead of a training."
        ),
    ] = None,
    *,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Run file (TOML) of a training.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Lay a setting over the run file, as train.epochs=3; may be given again.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; default: runs/NAME-TIME.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with the run of this folder, exactly."),
    ] = None,
    allow_data_change: Annotated[
        bool,
        typer.Option(
            "--allow-data-change", help="With --resume: the training data may have changed."
        ),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what the run of --config will take, and stop.")
    ] = False,
    env: Annotated[
        Path | None, typer.Option(help="Run in this environment instead of a built one.")
    ] = None,
    profile: ProfileOption = None,
) -> None:
    """Train a DFlash drafter in an environment that passes its checks, or use a trained one.

    Takes the environment that was built last, that of --profile, or the one --env names. If it does
    not pass, prints the report and runs nothing. Otherwise runs `python -m train` in it. Ctrl-C
    saves a checkpoint and stops; a second one stops at once. Whatever ended a run, --resume goes on
    from its newest whole checkpoint.

    Sub-commands: plan, fields, warm, evaluate, generate, export, self-prompts, regenerate, prompts.
    What stands behind the name is theirs: `envdoctor train evaluate --help` explains one; options
    of this command stand before the name. `envdoctor train fields` lists what a run file and --set
    can hold.

    Exit codes: those of the trainer; 1 the environment does not pass, 2 the run file or an argument
    is not valid, 7 the end of the training could not be saved, 8 another process works on the run,
    130 interrupted.
    """
    from envdoctor import settings
    from envdoctor.launch import train as run
    from envdoctor.progress import Progress
    from envdoctor.train_request import TrainRequest

    wanted = profile_name(profile) if profile else None
    request = TrainRequest(
        config=config,
        resume=resume,
        changes=tuple(changes or ()),
        command=tuple(command or ()),
        out=out,
        env=env,
        profile=wanted,
        extra=tuple(
            name
            for name, is_given in (("--allow-data-change", allow_data_change), ("--plan", plan))
            if is_given
        ),
    )
    raise typer.Exit(run(request, settings=settings.load(), talk=Progress()))
