"""Judge fault cases: `python -m tests.faults CASE_DIR...` prints one report for each folder."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from envdoctor.facts.snapshot import to_data
from tests.faults.case import load_case


def judge(folder: Path) -> dict[str, Any]:
    """Return what `envdoctor check --format json` says about a case."""
    case = load_case(folder)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as snapshot:
        json.dump(to_data(case.facts()), snapshot)
        snapshot.flush()
        options = ["--prefix", case.folder, "--sysroot", case.sysroot, "--facts", snapshot.name]
        if log := case.told.get("log"):
            options += ["--log", log]
        done = subprocess.run(
            [sys.executable, "-m", "envdoctor", "check", "--format", "json", *map(str, options)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main(folders: list[str]) -> None:
    """Print a JSON object: folder name to report, or to why there is none."""
    reports: dict[str, Any] = {}
    for folder in map(Path, folders):
        try:
            reports[folder.resolve().name] = judge(folder)
        # one folder that is no case must not hide what is said about the others
        except Exception as error:  # noqa: BLE001
            reports[folder.resolve().name] = {"error": f"{type(error).__name__}: {error}"}
    json.dump(reports, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
