"""Arguments that several sub-commands share."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from train.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MAX_TREE_BUDGET = 4096
"""Trees of 256 to 512 tokens are the best that was published (DDTree, arXiv 2604.12989)."""


def add_decoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how a finished drafter decodes."""
    add = parser.add_argument
    add("--best", action="store_true", help="the run's best checkpoint instead of its newest")
    add("--max-new-tokens", type=positive, default=128, metavar="N", help="per answer (128)")
    add("--temperature", type=temperature, default=0.0, metavar="T", help="0 is greedy (0)")
    add("--seed", type=seed, default=0, help="of the sampling; without meaning at 0 (0)")
    add(
        "--dtype",
        choices=("target", "float32", "bfloat16"),
        default="target",
        help="element type to compute in; target: as target.dtype of the run",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where (auto)")
    add("--target", metavar="PATH", help="as target.path in a run file; default: the run's")
    add("--eos-token-id", type=int, metavar="ID", help="end-of-turn id; default: the run's")


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


def positive(text: str) -> int:
    """Parse a whole number of at least 1.

    Raises:
        ArgumentTypeError: It is none.
    """
    return _whole(text, least=1)


def seed(text: str) -> int:
    """Parse a seed.

    Raises:
        ArgumentTypeError: It is no whole number of 32 bits.
    """
    return _whole(text, least=0, most=2**32 - 1)


def tree_budget(text: str) -> int:
    """Parse the draft tokens of a tree, each of which sees or does not see each other one.

    Raises:
        ArgumentTypeError: It is no whole number from 1 on, or too many.
    """
    return _whole(text, least=1, most=MAX_TREE_BUDGET)


def non_negative(text: str) -> int:
    """Parse a whole number of at least 0.

    Raises:
        ArgumentTypeError: It is none.
    """
    return _whole(text, least=0)


def temperature(text: str) -> float:
    """Parse a temperature.

    Raises:
        ArgumentTypeError: It is no finite number of at least 0.
    """
    return _number(text, wanted="a number of at least 0", least=0.0, most=math.inf)


def share(text: str) -> float:
    """Parse a share above 0.

    Raises:
        ArgumentTypeError: It is no number above 0 and at most 1.
    """
    return _number(text, wanted="a number above 0 and at most 1", least=1e-6, most=1.0)


def _number(text: str, *, wanted: str, least: float, most: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not least <= found <= most or math.isinf(found):
        raise argparse.ArgumentTypeError(f"found {text}, wanted {wanted}")
    return found


def _whole(text: str, *, least: int, most: int | None = None) -> int:
    try:
        found = int(text)
    except ValueError:
        found = least - 1
    if found < least or (most is not None and found > most):
        limit = "" if most is None else f" and at most {most}"
        raise argparse.ArgumentTypeError(
            f"found {text}, wanted a whole number of at least {least}{limit}"
        )
    return found


def require_place(path: Path, *, option: str) -> None:
    """Refuse a file that could not be written, before the work whose figures it is to hold.

    Raises:
        ConfigError: A folder is there, or none to put it in.
    """
    if path.is_dir():
        raise ConfigError([f"{option} {path}: found a folder, wanted a file"])
    if not path.parent.is_dir():
        raise ConfigError([f"{option} {path}: no such folder"])
