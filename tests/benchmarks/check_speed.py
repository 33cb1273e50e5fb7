"""Time `envdoctor check` against its peers on one environment, side by side.

    python -m tests.benchmarks.check_speed ENVIRONMENT [--runs N] [--deep] [--peer NAME=COMMAND ...]

Every round runs each command once, so that all meet the same machine. Figures are medians with the
smallest and largest run; memory is the largest resident set of the process or of one it waited for.
"""

from __future__ import annotations

import argparse
import heapq
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.probes.record import read_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MB = 1024  # getrusage counts in KiB


@dataclass
class Contender:
    """One command and what its runs took."""

    name: str
    argv: Sequence[str]
    wall_seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    memory_kib: int = 0

    def run(self, variables: dict[str, str]) -> None:
        start = time.perf_counter()
        process = subprocess.Popen(
            self.argv, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, _, usage = os.wait4(process.pid, 0)
        self.wall_seconds.append(time.perf_counter() - start)
        self.cpu_seconds.append(usage.ru_utime + usage.ru_stime)
        self.memory_kib = max(self.memory_kib, usage.ru_maxrss)

    @property
    def median(self) -> float:
        return statistics.median(self.wall_seconds)


def contenders(prefix: Path, peers: Iterable[str]) -> list[Contender]:
    """Return what is timed by default: the check, `import torch`, the installers' checks."""
    python = str(prefix / "bin/python")
    found = [
        Contender(
            "envdoctor check", [sys.executable, "-m", "envdoctor", "check", "--prefix", str(prefix)]
        ),
        Contender("import torch", [python, "-c", "import torch"]),
        Contender("pip check", [sys.executable, "-m", "pip", "--python", python, "check"]),
        Contender("uv pip check", [sys.executable, "-m", "uv", "pip", "check", "--python", python]),
    ]
    for peer in peers:
        name, _, command = peer.partition("=")
        found.append(Contender(name, shlex.split(command)))
    return found


def deep_contenders(prefix: Path, folder: Path) -> list[Contender]:
    """Return the deep check and sha256sum over the same files, balanced over all cores.

    Args:
        prefix: The environment.
        folder: Where lists of files are written.
    """
    cores = len(os.sched_getaffinity(0))
    lists = [folder / f"files-{index}" for index in range(cores)]
    for path, files in zip(lists, balanced(recorded_files(prefix), cores), strict=True):
        path.write_bytes(b"\0".join(os.fsencode(file) for file in files))
    jobs = " ".join(f"xargs -0 sha256sum < {shlex.quote(str(path))} &" for path in lists)
    check = [sys.executable, "-m", "envdoctor", "check", "--all", "--deep", "--prefix", str(prefix)]
    return [
        Contender("envdoctor check --all --deep", check),
        Contender(f"sha256sum, {cores} at once", ["/bin/sh", "-c", f"{jobs} wait"]),
    ]


def recorded_files(prefix: Path) -> list[tuple[int, str]]:
    """Return size and path of every recorded file that has a hash."""
    found = []
    for record in prefix.glob("lib/python3*/site-packages/*.dist-info/RECORD"):
        site = record.parents[1]
        found += [
            (size, str(site / path))
            for path, digest, size in read_record(str(record)).rows
            if digest and size is not None
        ]
    return found


def balanced(files: Iterable[tuple[int, str]], shares: int) -> list[list[str]]:
    """Share files out so that each share has about as many bytes."""
    heap: list[tuple[int, int]] = [(0, index) for index in range(shares)]
    found: list[list[str]] = [[] for _ in range(shares)]
    for size, path in sorted(files, reverse=True):
        total, index = heapq.heappop(heap)
        found[index].append(path)
        heapq.heappush(heap, (total + size, index))
    return found


def table(items: Sequence[Contender]) -> str:
    """Return the figures, each beside its ratio to the first."""
    rows = [f"{'command':<30} {'median s':>9} {'min':>6} {'max':>6} {'cpu s':>6} {'MB':>5}  ratio"]
    rows += [
        f"{item.name:<30} {item.median:9.3f} {min(item.wall_seconds):6.3f} "
        f"{max(item.wall_seconds):6.3f} {statistics.median(item.cpu_seconds):6.2f} "
        f"{item.memory_kib // _MB:5d}  {item.median / items[0].median:5.2f}"
        for item in items
    ]
    return "\n".join(rows)


def measure(items: Sequence[Contender], *, runs: int) -> None:
    """Run all contenders in turn; a first round warms caches and is not counted."""
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    for item in items:
        Contender(item.name, item.argv).run(variables)
    for _ in range(runs):
        for item in items:
            item.run(variables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--deep", action="store_true", help="time --deep against sha256sum instead")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.deep:
            items = deep_contenders(options.environment, Path(folder))
        else:
            items = contenders(options.environment, options.peer)
        measure(items, runs=options.runs)
    sys.stdout.write(table(items) + "\n")


if __name__ == "__main__":
    main()
