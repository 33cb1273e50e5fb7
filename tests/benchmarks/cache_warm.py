"""Warm, run, move and run again, in fresh caches; print what each step compiled and took.

    python -m tests.benchmarks.cache_warm RUN_FILE --env ENVIRONMENT --out FOLDER [--whole]

The run is shortened to a few steps of the same shapes, unless `--whole`. FOLDER gets `record.json`,
the runs' folders, the exported cache, and `triton-entries/`: some of Triton's entries with their
paths scrubbed, for `tests/facts`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.caches.make_triton_entries import scrub
from train.config import load_config, to_builtins

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
_SHORT: dict[str, dict[str, int]] = {
    "train": {"max_steps": 30},
    "eval": {"num_prompts": 2, "max_new_tokens": 8},
}
_ENTRIES = 4


class Record:
    """Runs commands in one environment with caches of its own, and keeps what they said.

    Args:
        env: The environment's folder.
        out: Where everything is written.
    """

    def __init__(self, env: Path, out: Path) -> None:
        self.out = out
        self.cache = out / "caches/inductor"
        self._env = ["--env", str(env)]
        self._prefix = ["--prefix", str(env)]
        self._variables = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache),
            "ENVDOCTOR_HOME": str(out / "home"),
        }
        self._variables.pop("TRITON_CACHE_DIR", None)
        self.steps: list[dict[str, Any]] = []

    def step(self, name: str, command: Sequence[str], *, run: str = "") -> None:
        """Run one command of envdoctor; stop the script if it fails."""
        where = self._env if command[0] == "train" or "warm" in command else self._prefix
        argv = [sys.executable, "-m", "envdoctor", *command, *where]
        argv += ["--out", str(self.out / run)] if run else []
        start = time.monotonic()
        done = subprocess.run(
            argv, env=self._variables, stdout=subprocess.PIPE, text=True, check=False
        )
        found: dict[str, Any] = {
            "step": name,
            "code": done.returncode,
            "seconds": round(time.monotonic() - start, 1),
            "said": done.stdout.strip().splitlines()[-1:],
        }
        if run and done.returncode == 0:
            summary = json.loads((self.out / run / "summary.json").read_text())
            found["compilation"] = summary["compilation"]
        self.steps.append(found)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        (self.out / "record.json").write_text(json.dumps(self.steps, indent=2) + "\n")
        if done.returncode:
            sys.exit(f"{name} ended with {done.returncode}:\n{done.stdout}")


def shortened(run_file: Path, target: Path) -> Path:
    """Write a run of the same shapes with fewer steps and prompts."""
    run = to_builtins(load_config(run_file))
    for section, values in _SHORT.items():
        run[section] |= values
    lines = [f"name = {json.dumps(run.pop('name'))}"]
    for section, values in run.items():
        lines.append(f"[{section}]")
        # JSON's numbers, texts, truths and lists are TOML's as well
        lines += [f"{key} = {json.dumps(one)}" for key, one in values.items() if one is not None]
    target.write_text("\n".join(lines) + "\n")
    return target


def copy_entries(cache: Path, target: Path) -> None:
    """Copy the smallest entries of Triton, with their paths scrubbed."""
    kernels = [path.parent for path in cache.glob("triton/*/*/*.cubin")]
    sizes = {path: sum(one.stat().st_size for one in path.iterdir()) for path in kernels}
    for entry in sorted(sizes, key=lambda path: sizes[path])[:_ENTRIES]:
        copied = target / entry.name
        shutil.copytree(entry, copied)
        for path in copied.glob("*.json"):
            path.write_text(path.read_text().replace(str(entry.parent), str(target)))
    if target.is_dir():
        scrub(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_file", type=Path)
    parser.add_argument("--env", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--whole", action="store_true", help="do not shorten the run")
    options = parser.parse_args()
    out = options.out.absolute()
    out.mkdir(parents=True)
    config = str(
        options.run_file if options.whole else shortened(options.run_file, out / "short.toml")
    )
    record = Record(options.env, out)
    packed = str(out / "moved.cache")
    record.step("warm", ["cache", "warm", "--config", config])
    copy_entries(record.cache, out / "triton-entries")
    record.step("warm again", ["cache", "warm", "--config", config])
    record.step("run", ["train", "--config", config], run="run-1")
    record.step("verify --deep", ["cache", "verify", "--deep"])
    record.step("verify", ["cache", "verify"])
    record.step("export", ["cache", "export", packed])
    shutil.rmtree(record.cache)
    record.step("import", ["cache", "import", packed])
    record.step("run after import", ["train", "--config", config], run="run-2")
    record.step("verify at the end", ["cache", "verify"])


if __name__ == "__main__":
    main()
