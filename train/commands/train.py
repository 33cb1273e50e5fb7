"""Train the drafter that a run file describes.

The run folder gets metrics, a summary with the acceptance length, and a checkpoint that serving
engines load. Ctrl-C saves what was learned and stops; a second one stops at once.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from train.config import check_inputs, check_layout, load_config
from train.run_folder import RunFolder
from train.signals import INTERRUPTED_EXIT_CODE, InterruptedRunError, StopSignal

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what a training takes."""
    parser.add_argument("--config", type=Path, required=True, help="run file, TOML")
    parser.add_argument("--out", type=Path, help="new folder; default runs/NAME-TIME")


def run(options: argparse.Namespace) -> int:
    """Check the files, then load torch and do the work.

    Returns:
        0 finished; 1 a self-test of target, attention or checkpoint failed; 130 stopped.
    """
    stop = StopSignal()
    try:
        with stop.installed():
            return _run(options, stop)
    except InterruptedRunError:
        sys.stderr.write("stopped before there was anything to save\n")
        return INTERRUPTED_EXIT_CODE


def _run(options: argparse.Namespace, stop: StopSignal) -> int:
    config = load_config(options.config)
    check_layout(config.layout, torch_version=metadata.version("torch"))
    check_inputs(config)
    folder = RunFolder.create(config, options.out)
    # Here, because torch takes seconds to import.
    from train.run import SELF_TEST_FAILURES, execute  # noqa: PLC0415

    try:
        finished = execute(config, folder=folder, stop=stop)
    except SELF_TEST_FAILURES as error:
        sys.stderr.write(f"error: self-test failed: {error}\n")
        return 1
    return 0 if finished else INTERRUPTED_EXIT_CODE
