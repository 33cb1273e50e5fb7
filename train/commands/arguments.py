"""Arguments that several sub-commands share."""

from __future__ import annotations

import argparse
import math


def add_decoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how a finished drafter decodes."""
    add = parser.add_argument
    add("--best", action="store_true", help="the run's best checkpoint instead of its newest")
    add("--max-new-tokens", type=positive, default=128, metavar="N", help="per answer (128)")
    add("--temperature", type=temperature, default=0.0, metavar="T", help="0 is greedy (0)")
    add("--seed", type=int, default=0, help="of the sampling; without meaning at 0 (0)")
    add(
        "--dtype",
        choices=("target", "float32", "bfloat16"),
        default="target",
        help="element type to compute in; target: as target.dtype of the run",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where (auto)")
    add("--target", metavar="PATH", help="as target.path in a run file; default: the run's")
    add("--eos-token-id", type=int, metavar="ID", help="end-of-turn id; default: the run's")


def positive(text: str) -> int:
    """Parse a whole number of at least 1.

    Raises:
        ArgumentTypeError: It is none.
    """
    return _whole(text, least=1)


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
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found >= 0):
        raise argparse.ArgumentTypeError(f"found {text}, wanted a number of at least 0")
    return found


def _whole(text: str, *, least: int) -> int:
    try:
        found = int(text)
    except ValueError:
        found = least - 1
    if found < least:
        raise argparse.ArgumentTypeError(f"found {text}, wanted a whole number of at least {least}")
    return found
