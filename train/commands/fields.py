"""Print every setting of a run file: which values it takes, its default, what it means.

Any of them can be given on the command line as well: --set train.epochs=3
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from train.exit_codes import ExitCode

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what it takes: nothing."""
    del parser


def run(options: argparse.Namespace) -> int:
    """Print them."""
    del options
    from train.fields import table  # noqa: PLC0415  the help of this command needs none of it

    sys.stdout.write(table())
    return ExitCode.OK
