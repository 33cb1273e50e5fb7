"""Compile what a run needs, forward and backward, at every length, and stop before its first step.

What is compiled stays in the caches that this process's variables name; a run with the same ones
finds it there. Where attention is dense, as on a CPU, nothing is compiled.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from train.commands.arguments import require_place
from train.config import check_inputs, check_layout, load_config
from train.exit_codes import ExitCode
from train.overrides import add_set_argument
from train.run_folder import write_json

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what warming takes."""
    parser.add_argument("--config", type=Path, required=True, help="run file, TOML")
    add_set_argument(parser)
    parser.add_argument("--report", type=Path, help="write here what was compiled, as JSON")


def run(options: argparse.Namespace) -> int:
    """Check the files, then load torch, target and data as the run does, and warm up.

    Returns:
        0 warm; 1 a self-test of target or attention failed, or memory is full; 3 the GPU failed;
        7 no space.
    """
    config = load_config(options.config, settings=options.set)
    check_layout(config.layout, torch_version=metadata.version("torch"))
    check_inputs(config)
    if options.report:
        require_place(options.report, option="--report")
    # Here, because torch takes seconds to import.
    from train.failure import told  # noqa: PLC0415
    from train.inputs import load  # noqa: PLC0415
    from train.progress import Progress  # noqa: PLC0415
    from train.warmup import warm_up  # noqa: PLC0415

    progress = Progress(every_seconds=config.log.every_seconds)
    progress.say(f"{config.name}: loading {config.target.path}")
    try:
        pair = load(config, say=progress.say).pair
        found = warm_up(config, pair=pair, progress=progress).summary()
    except Exception as error:  # noqa: BLE001  raised again where it is a bug
        return told(error)
    compiled = found["compiled"]
    if not found["num_shapes"]:
        progress.say(f"{config.name}: attention is dense here, so nothing is compiled")
    else:
        progress.say(
            f"{config.name}: {found['num_shapes']} shapes, {compiled['num_graphs']} graphs: "
            f"{compiled['num_new']} compiled, {compiled['num_kernels_cached']} from the cache"
        )
    if options.report:
        write_json(options.report, found)
    return ExitCode.OK
