"""Count how often the FX-tracing race shows in several versions of torch, with each remedy.

    python -m tests.benchmarks.fx_race_counts [--seconds 6] [--scenario NAME] PYTHON...

Each PYTHON is the interpreter of an environment with torch. The program that `envdoctor check
--probe --select fx-tracing-race` runs is started in it once for each remedy; `envdoctor explain
fx-tracing-race` has what it counted. A busy machine changes the totals and not the story.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from envdoctor.facts import RACE_REMEDIES

SCRIPT = Path(__file__).parents[2] / "envdoctor" / "probe_scripts" / "fx_race.py"


def measured(python: str, remedy: str, *, seconds: float, scenarios: list[str]) -> dict[str, Any]:
    """Run the probe once and return its answer."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, str(SCRIPT), remedy, f"{seconds:g}", *scenarios],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": folder},
            stdout=subprocess.PIPE,
            cwd=folder,
            check=True,
            text=True,
        )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def rows(python: str, *, seconds: float, scenarios: list[str]) -> list[str]:
    """Return the table's rows of one environment: a scenario each, a column for each remedy."""
    cells: dict[str, list[str]] = {name: [] for name in scenarios}
    torch = ""
    for remedy in RACE_REMEDIES:
        answer = measured(python, remedy, seconds=seconds, scenarios=scenarios)
        torch = answer["torch"]
        for case in answer["cases"]:
            counts = f"{case['num_failed']:,} of {case['num_calls']:,}"
            hung = f"{case['num_hung']} of 3 hung"
            cells[case["scenario"]].append(hung if case["num_hung"] else counts)
    return [f"| {torch} | {name} | {' | '.join(found)} |" for name, found in cells.items()]


def main() -> None:
    """Print the table as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", nargs="+", help="interpreters of environments with torch")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each count")
    parser.add_argument("--scenario", action="append", help="default: backward and tracing")
    options = parser.parse_args()
    sys.stdout.write(f"| torch | scenario | {' | '.join(RACE_REMEDIES)} |\n")
    sys.stdout.write("| --- | --- | ---: | ---: | ---: |\n")
    for python in options.python:
        scenarios = options.scenario or ["backward", "tracing"]
        sys.stdout.writelines(
            f"{row}\n" for row in rows(python, seconds=options.seconds, scenarios=scenarios)
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
