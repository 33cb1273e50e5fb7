"""Time `envdoctor cache verify` on a large cache that is made of real entries.

    python -m tests.benchmarks.cache_speed ENVIRONMENT [--from CACHE] [--megabytes N] [--times N]

CACHE is an Inductor cache that this environment wrote; without it one small function is compiled
first. Its entries are copied under other names until there are N megabytes: pickles get a changed
byte in their text, and with it the name of their content; code keeps its content. With --times each
is as many times as large, as those of a large model are: pickles by what stands before their marks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from envdoctor.caches.entries import Entry, group
from envdoctor.probes.build_keys import compact
from envdoctor.probes.cache_files import list_files
from tests.benchmarks.check_speed import Contender, measure, table

_MEGABYTE = 10**6
_COMPILED = """
import torch

@torch.compile
def function(x):
    return (x.sin() * 2).sum()

function(torch.randn(8, requires_grad=True)).backward()
"""


def compile_one(environment: Path, cache: Path) -> None:
    """Fill a cache by compiling a small function, forward and backward."""
    variables = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    python = str(environment / "bin/python")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "compiled.py")
        script.write_text(_COMPILED)
        subprocess.run([python, str(script)], env=variables, check=True)


def multiply(source: Path, target: Path, *, num_bytes: int, times: int = 1) -> int:
    """Copy entries again and again under other names; return how many there are then."""
    entries = [one for one in group("inductor", list_files(str(source)).files) if one.size]
    written = number = 0
    while written < num_bytes:
        for entry in entries:
            copy_entry(source, target, entry, number, times=times)
            number += 1
            written += entry.size * times
    return number


def copy_entry(source: Path, target: Path, entry: Entry, number: int, *, times: int) -> None:
    """Copy one entry under a name that no other has, as many times as large."""
    name = compact(f"{number}".encode())
    for file in entry.files:
        content = (source / file.path).read_bytes()
        if entry.kind == "graph":
            letter = file.path.rpartition("/")[0].rpartition("/")[2][0]
            content = content.replace(b"cache_key_tag", f"c{number:012d}"[:13].encode())
            content = content[:2] + b"x" * (len(content) * (times - 1)) + content[2:]
            folder = f"fxgraph/{name[:2]}/f{name}" if letter == "f" else f"aotautograd/a{name}"
            path = target / folder / compact(content)
        else:
            suffix = "".join(Path(file.path).suffixes)
            path = target / name[:2] / f"c{name}{suffix}"
            filling = b"\0" if suffix.endswith(".so") else b"\n"
            content += filling * (len(content) * (times - 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--megabytes", type=int, default=350)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--runs", type=int, default=11)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, cache = options.source or Path(folder, "one"), Path(folder, "cache")
        if options.source is None:
            compile_one(options.environment, source)
        number = multiply(
            source, cache, num_bytes=options.megabytes * _MEGABYTE, times=options.times
        )
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "ENVDOCTOR_HOME": f"{folder}/home"}
        variables["TMPDIR"] = folder  # this user's precompiled headers are not part of it
        os.environ.update(variables)
        command = [sys.executable, "-m", "envdoctor", "cache", "verify"]
        command += ["--prefix", str(options.environment)]
        items = [Contender("verify, nothing stamped", command)]
        measure(items, runs=options.runs)
        subprocess.run(
            [*command, "--deep", "--stamp"], check=True, stdout=subprocess.DEVNULL, cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        stamped = [Contender("verify, all stamped", command)]
        stamped.append(Contender("verify --deep", [*command, "--deep"]))
        measure(stamped, runs=options.runs)
        size = sum(file.size for file in list_files(str(cache)).files)
        shutil.rmtree(cache)
    sys.stdout.write(f"{number} entries, {size / _MEGABYTE:.0f} MB\n{table([*items, *stamped])}\n")


if __name__ == "__main__":
    main()
