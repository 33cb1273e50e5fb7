"""Let the target write the answers of a prompts file: batched, greedy, resumable.

Keeps every turn up to the last user message of each row, lets the target answer, and appends one
conversation a line. A row whose id is in the output file already is skipped, so that a stopped run
continues where it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from train.config import ConfigError, TargetConfig

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what it takes."""
    parser.add_argument("--prompts", type=Path, required=True, help="JSONL with id and messages")
    parser.add_argument("--out", type=Path, required=True, help="JSONL to append to")
    parser.add_argument("--target", required=True, help="as target.path in a run file")
    parser.add_argument("--eos-token-id", type=int, help="end-of-turn id; default: the tokenizer's")
    parser.add_argument("--max-new-tokens", type=int, default=128, help="tokens per answer")
    parser.add_argument("--batch", type=int, default=32, help="prompts answered at once")


def run(options: argparse.Namespace) -> int:
    """Load the target, write the answers."""
    if not options.prompts.is_file():
        raise ConfigError([f"--prompts {options.prompts}: no such file"])
    from train.regenerate import regenerate  # noqa: PLC0415  torch takes seconds to import
    from train.target import load_target  # noqa: PLC0415

    config = TargetConfig(path=options.target, eos_token_id=options.eos_token_id)
    regenerate(load_target(config), options)
    return 0
