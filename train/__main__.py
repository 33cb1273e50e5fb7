"""`python -m train --config FILE --out DIR`: train the drafter that a run file describes."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from train.config import check_inputs, load_config
from train.run_folder import RunFolder
from train.settings import ConfigError
from train.signals import INTERRUPTED_EXIT_CODE, InterruptedRunError, StopSignal

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and return the exit code.

    0 finished; 1 a self-test of target, attention or checkpoint failed; 2 the run file, its data or
    `--out` cannot be used; 3 a bug; 130 stopped by Ctrl-C or SIGTERM, with what was learned saved.
    """
    parser = argparse.ArgumentParser(prog="python -m train", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="run file, TOML")
    parser.add_argument("--out", type=Path, help="new folder; default runs/NAME-TIME")
    options = parser.parse_args(argv)
    stop = StopSignal()
    try:
        with stop.installed():
            return run(options.config, options.out, stop)
    except ConfigError as error:
        sys.stderr.writelines(f"error: {problem}\n" for problem in error.problems)
        return 2
    except InterruptedRunError:
        sys.stderr.write("stopped before there was anything to save\n")
        return INTERRUPTED_EXIT_CODE
    except Exception:  # noqa: BLE001  whatever reaches the edge of the process is a bug
        traceback.print_exc()
        return 3


def run(config_path: Path, out: Path | None, stop: StopSignal) -> int:
    """Check the files, then load torch and do the work."""
    config = load_config(config_path)
    check_inputs(config)
    folder = RunFolder.create(config, out)
    # Here, because torch takes seconds to import.
    from train.run import SELF_TEST_FAILURES, execute  # noqa: PLC0415

    try:
        finished = execute(config, folder=folder, stop=stop)
    except SELF_TEST_FAILURES as error:
        sys.stderr.write(f"error: self-test failed: {error}\n")
        return 1
    return 0 if finished else INTERRUPTED_EXIT_CODE


if __name__ == "__main__":
    sys.exit(main())
