"""Train the drafter that a run file describes, or go on with a run that was interrupted.

The run folder gets metrics, checkpoints that serving engines load, and a summary with the
acceptance length. Ctrl-C saves what was learned and stops; a second one stops at once. Whatever
ends a run, --resume goes on from its newest whole checkpoint as if nothing had happened.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from train.commands.plan import show
from train.config import changed, check_inputs, check_layout, load_config
from train.exit_codes import ExitCode
from train.overrides import add_set_argument
from train.run_folder import BusyError, NoSpaceError, RunFolder
from train.session import StartTerms
from train.settings import ConfigError
from train.signals import InterruptedRunError, StopSignal
from train.sinks import check_sinks

if TYPE_CHECKING:
    import argparse

    from train.config import TrainConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what a training takes."""
    parser.add_argument("--config", type=Path, help="run file, TOML")
    add_set_argument(parser)
    parser.add_argument("--out", type=Path, help="new folder; default runs/NAME-TIME")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="folder of a run to go on with; --config or --set then change its settings",
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="say what the run of --config will take, as the sub-command plan does, and stop",
    )
    parser.add_argument(
        "--allow-data-change",
        action="store_true",
        help="with --resume: go on although the training data changed, from the start of the epoch",
    )
    parser.add_argument(
        "--receipt", metavar="ID", help="receipt of the environment, noted in each checkpoint"
    )


def run(options: argparse.Namespace) -> int:
    """Check the files, then load torch and do the work.

    Returns:
        0 finished; 1 a self-test of target, attention or checkpoint failed, or the GPU's memory is
        full; 3 the GPU failed; 7 no space, and the end could not be saved; 8 another process works
        on the run; 130 stopped.
    """
    if options.plan:
        return _planned(options)
    stop = StopSignal()
    with stop.installed():
        try:
            config, folder = _prepared(options)
        except NoSpaceError as error:
            sys.stderr.write(f"error: {error}\n")
            return ExitCode.SPACE
        try:
            with folder.locked():
                return _run(config, folder=folder, stop=stop, options=options)
        except BusyError as error:
            sys.stderr.write(f"error: {error}\n")
            return ExitCode.BUSY
        except InterruptedRunError:
            sys.stderr.write(f"stopped; --resume {folder.path} goes on\n")
            return ExitCode.INTERRUPTED


def _planned(options: argparse.Namespace) -> int:
    if options.config is None or options.resume is not None:
        raise ConfigError(["--plan: wanted with --config, and without --resume"])
    return show(load_config(options.config, settings=options.set))


def _prepared(options: argparse.Namespace) -> tuple[TrainConfig, RunFolder]:
    """Read the settings, and return them with the folder of the run.

    Raises:
        ConfigError: The arguments, the run file or the folder cannot be used.
    """
    given = options.config and load_config(options.config, settings=options.set)
    if options.resume is None:
        if given is None:
            raise ConfigError(["--config: missing, wanted a run file; or --resume RUN"])
        if options.allow_data_change:
            raise ConfigError(["--allow-data-change: wanted only with --resume RUN"])
        return _checked(given), RunFolder.create(given, options.out)
    if options.out is not None:
        raise ConfigError(["--out: wanted without --resume, which goes on in its own folder"])
    folder = RunFolder.existing(options.resume)
    former = changed(folder.resolved_config(), path=folder.config, settings=options.set)
    return _checked(given or former), folder


def _checked(config: TrainConfig) -> TrainConfig:
    check_layout(config.layout, torch_version=metadata.version("torch"))
    check_inputs(config)
    check_sinks(config.log)
    return config


def _run(
    config: TrainConfig, *, folder: RunFolder, stop: StopSignal, options: argparse.Namespace
) -> int:
    is_changed = options.config or options.set or options.allow_data_change
    if folder.is_finished() and not is_changed:
        sys.stderr.write(f"{folder.path}: the run is finished; see {folder.summary}\n")
        return ExitCode.OK
    # Here, because torch takes seconds to import.
    from train.failure import told  # noqa: PLC0415
    from train.run import execute  # noqa: PLC0415

    terms = StartTerms(receipt_id=options.receipt, allow_data_change=options.allow_data_change)
    try:
        finished = execute(config, folder=folder, stop=stop, terms=terms)
    except Exception as error:  # noqa: BLE001  raised again where it is a bug
        return told(error, folder.path)
    return ExitCode.OK if finished else ExitCode.INTERRUPTED
