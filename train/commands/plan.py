"""Say what a run will take, and stop: settings, steps, memory, operations, time.

Reads the run file, all data, and the target's configuration and tokenizer; neither its weights nor
a GPU is needed. Memory leaves out activations, which depend on the kernels.

    python -m train plan --config run.toml --tokens-per-second 20000
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from train.commands.arguments import positive
from train.config import check_inputs, check_layout, load_config
from train.exit_codes import ExitCode
from train.overrides import add_set_argument

if TYPE_CHECKING:
    import argparse

    from train.config import TrainConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what it takes."""
    parser.add_argument("--config", type=Path, required=True, help="run file, TOML")
    add_set_argument(parser)
    parser.add_argument(
        "--tokens-per-second",
        type=positive,
        metavar="N",
        help="context tokens per second that a run of this kind was measured to take",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(text)")


def run(options: argparse.Namespace) -> int:
    """Count, and write the figures to standard output."""
    config = load_config(options.config, settings=options.set)
    return show(config, tokens_per_second=options.tokens_per_second, style=options.format)


def show(config: TrainConfig, *, tokens_per_second: int | None = None, style: str = "text") -> int:
    """Write what a run will take to standard output, and return the exit code.

    Args:
        config: The run.
        tokens_per_second: Context tokens per second that somebody measured.
        style: `text` or `json`.
    """
    check_layout(config.layout, torch_version=metadata.version("torch"))
    check_inputs(config)
    from train.forecast import forecast  # noqa: PLC0415  torch takes seconds to import
    from train.forecast_text import forecast_lines  # noqa: PLC0415

    summary = forecast(config).summary()
    lines = forecast_lines(summary, tokens_per_second=tokens_per_second)
    text = json.dumps(summary, indent=2) if style == "json" else "\n".join(lines)
    sys.stdout.write(text + "\n")
    return ExitCode.OK
