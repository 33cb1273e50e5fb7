"""Let the target write the user's prompts itself: batched, seeded, resumable.

Writes `train.prompts.jsonl` and `held-out.prompts.jsonl`; no prompt of one is alike to a prompt of
the other. A stopped command continues where it was. `regenerate` then answers them.

    python -m train self-prompts --target FOLDER --num 8000 --out prompts
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from train.commands.arguments import add_writing_arguments, positive, share, temperature
from train.exit_codes import ExitCode

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what it takes."""
    add_writing_arguments(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for both files")
    parser.add_argument(
        "--num", type=positive, required=True, metavar="N", help="prompts to train on"
    )
    parser.add_argument(
        "--held-out", type=positive, default=200, metavar="N", help="prompts to hold out"
    )
    parser.add_argument(
        "--exclude",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="JSONL of conversations whose prompts must not come back; may be given again",
    )
    parser.add_argument(
        "--temperature", type=temperature, default=1.0, metavar="T", help="default 1"
    )
    parser.add_argument(
        "--top-p", type=share, default=0.9, metavar="P", help="share drawn from (default 0.9)"
    )
    parser.add_argument(
        "--max-new-tokens",
        type=positive,
        default=128,
        metavar="N",
        help="longer prompts are dropped (default 128)",
    )


def run(options: argparse.Namespace) -> int:
    """Write both files."""
    from train.self_prompts import write_files  # noqa: PLC0415  torch takes seconds to import

    write_files(options)
    return ExitCode.OK
