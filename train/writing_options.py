"""Options of the commands that let a target write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from train.commands.arguments import positive, seed
from train.config import TargetConfig
from train.settings import ConfigError

if TYPE_CHECKING:
    import argparse

    from train.target import Target


def add_writing_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which target writes, and how."""
    parser.add_argument("--target", required=True, help="as target.path in a run file")
    parser.add_argument(
        "--eos-token-id", type=int, metavar="ID", help="end-of-turn token; default: the tokenizer's"
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: a GPU, if any"
    )
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16"),
        default="auto",
        help="default: bfloat16 on a GPU, else float32",
    )
    parser.add_argument(
        "--batch", type=positive, default=32, metavar="N", help="texts at once (default 32)"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of what is drawn (default 0)")
    parser.add_argument(
        "--every-seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="between progress lines, where there is no terminal (default 10)",
    )


def check_target_path(path: str) -> None:
    """Check a target that is written as a path, before torch is loaded.

    Raises:
        ConfigError: Nothing is there.
    """
    if path.startswith((".", "/", "~")) and not Path(path).expanduser().exists():
        raise ConfigError([f"--target: nothing at {path}"])


def load_writer(options: argparse.Namespace) -> Target:
    """Load the target that the options name.

    Raises:
        ConfigError: It cannot be loaded, or the device does not exist.
    """
    # Here, because torch takes seconds to import.
    from train.machine import choose_device  # noqa: PLC0415
    from train.target_loading import load_target  # noqa: PLC0415

    config = TargetConfig(
        path=options.target, eos_token_id=options.eos_token_id, dtype=options.dtype
    )
    return load_target(config, device=choose_device(options.device))
