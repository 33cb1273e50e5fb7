"""Let the target write the answers of conversations: batched, resumable.

Every assistant turn of a row is written anew, in order; a row may also hold questions only. Rows
are as in a data file of a training. What is finished is remembered in OUT's journal, also which
rows were dropped, so that a stopped command continues where it was; OUT itself is written at the
end, in the order of the prompts. Use the temperature and the thinking mode that will be deployed.

    python -m train regenerate --target FOLDER --prompts prompts.jsonl --out answers.jsonl

Exit codes: 0 there are answers; 1 none could be kept; 2 a file or an argument cannot be used;
7 no space is left; 130 stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from train.commands.arguments import add_writing_arguments, positive, share, temperature
from train.exit_codes import ExitCode

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what it takes."""
    add_writing_arguments(parser)
    parser.add_argument(
        "--prompts", required=True, metavar="FILE", help="as data.train in a run file"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="JSONL of the conversations"
    )
    parser.add_argument(
        "--max-new-tokens",
        type=positive,
        default=512,
        metavar="N",
        help="per answer; the end of one that is cut off is not trained on (default 512)",
    )
    parser.add_argument(
        "--temperature",
        type=temperature,
        default=0.0,
        metavar="T",
        help="0, the default, takes the likeliest token",
    )
    parser.add_argument(
        "--top-p", type=share, default=1.0, metavar="P", help="share drawn from (default 1)"
    )
    parser.add_argument(
        "--thinking",
        choices=("on", "off", "default"),
        default="default",
        help="the chat template's enable_thinking, noted in each row; default leaves it out",
    )
    parser.add_argument(
        "--loops",
        choices=("drop", "cut"),
        default="drop",
        help="leave out an answer that repeats itself (default), or cut it before it does",
    )


def run(options: argparse.Namespace) -> int:
    """Write the answers.

    Returns:
        0 there are some; 1 no row could be kept.
    """
    from train.regenerate import regenerate  # noqa: PLC0415  torch takes seconds to import

    if regenerate(options)["kept"]:
        return ExitCode.OK
    sys.stderr.write(f"error: {options.out}: no row was kept, so there is nothing to train on\n")
    return ExitCode.PROBLEM
