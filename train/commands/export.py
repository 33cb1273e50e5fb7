"""Write a finished drafter in a layout that a serving engine takes, and check what was written.

speculators: vLLM's layout, with the target's embedding and head in it.
z-lab: what SGLang, vLLM and z-lab's loader take; every checkpoint of a run is in it already.

Exit codes: 0 written and checked; 1 what was written is not as it should be; 2 a file or an
argument cannot be used; 7 no space is left; 130 stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from train.exit_codes import ExitCode, exit_code_of
from train.reference import resolve
from train.settings import ConfigError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what it takes."""
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="run folder or checkpoint folder")
    add("out", type=Path, metavar="OUT", help="new folder")
    add("--format", choices=("speculators", "z-lab"), required=True, help="the layout")
    add("--best", action="store_true", help="the run's best checkpoint instead of its newest")
    add("--target", metavar="PATH", help="as target.path in a run file; default: the run's")
    add(
        "--target-name",
        metavar="NAME",
        help="what the engine loads as the target, a hub id or a folder; default: target.path",
    )
    add("--eos-token-id", type=int, metavar="ID", help="end-of-turn id; default: the run's")


def run(options: argparse.Namespace) -> int:
    """Load drafter and target, write, and say what to do with it."""
    reference = resolve(options.run, best=options.best)
    target_config = reference.target(options.target, eos_token_id=options.eos_token_id)
    require_free(options.out)
    from train.checkpoint import CheckpointError  # noqa: PLC0415  torch takes seconds to import
    from train.export import Source, export  # noqa: PLC0415  same
    from train.trained import load_drafter, load_target_of  # noqa: PLC0415  same

    drafter = load_drafter(reference.checkpoint)
    target = load_target_of(drafter, target_config, device="cpu")
    name = options.target_name or target_config.path
    try:
        export(Source(drafter, target, name), options.out, layout=options.format)
    except CheckpointError as error:
        sys.stderr.write(f"error: {options.out}: {error}\n")
        return ExitCode.PROBLEM
    except OSError as error:
        if exit_code_of(error) is ExitCode.SPACE:
            raise
        reason = error.strerror or str(error)
        raise ConfigError([f"{options.out}: cannot be written: {reason}"]) from error
    sys.stdout.write(f"{options.out}: {options.format}, block size {drafter.config.block_size}\n")
    return ExitCode.OK


def require_free(out: Path) -> None:
    """Refuse a place where something lies.

    Raises:
        ConfigError: It holds files, or is one.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError([f"{out}: holds files already; wanted a new or empty folder"])
