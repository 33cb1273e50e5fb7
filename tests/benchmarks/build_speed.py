"""Time `envdoctor build` against a bare `uv pip sync` of the same lock, side by side.

    python -m tests.benchmarks.build_speed --profile cpu [--runs N] [--cold N] [--folder DIR]

Warm: the wheels are local and uv has unpacked them; a build goes from the lock to a staging folder
that was held against its lock and, file by file, its RECORDs (stages inspect, install and verify of
the receipt; resolving and sealing are shown apart, modules are not imported), uv from an empty
environment to a full one. Cold: nothing is local, so both fetch, unpack and install (stages fetch
to verify). Both copy. Rounds alternate, figures are medians with the smallest and largest run.

At the end two environments, put together by copies and by hard links, must have the same hash of
all packages. Needs twice the space of the environment, its unpacked and its packed wheels.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from uv import find_uv_bin

from envdoctor import build, locking, profile, pylock, settings
from envdoctor.session import begun
from envdoctor.talk import silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envdoctor.receipt import Receipt
    from envdoctor.settings import Settings

_COLD_STAGES = ("fetch", "inspect", "install", "verify")
_WARM_STAGES = ("inspect", "install", "verify")


@dataclass
class Series:
    """What the rounds of one contender took, in seconds by part; `all` is what is compared."""

    name: str
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, parts: Mapping[str, float]) -> None:
        for part, seconds in parts.items():
            self.seconds.setdefault(part, []).append(seconds)

    def text(self) -> str:
        lines = []
        for part, found in self.seconds.items():
            spread = f"{min(found):8.2f} {max(found):8.2f}"
            lines.append(f"{self.name:<22} {part:<10} {statistics.median(found):8.2f} {spread}")
        return "\n".join(lines)


class Bench:
    """A profile, a lock of it with addresses, and the folders of both contenders."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.lock_file = folder / "pylock.bench.toml"
        self.python = ""
        self.variables: dict[str, str] = {}

    def home(self, name: str) -> Settings:
        return settings.load({**os.environ, "ENVDOCTOR_HOME": str(self.folder / name)})

    def request(self, link_mode: str = "copy") -> build.BuildRequest:
        wanted = profile.load_profile(self.name)
        no_imports = msgspec.structs.replace(wanted.check, imports=())
        section = msgspec.structs.replace(wanted.build, link_mode=link_mode)
        return build.BuildRequest(
            profile=msgspec.structs.replace(wanted, build=section, check=no_imports),
            locks=locking.folder_of(self.name),
            force=True,
        )

    def write_lock(self) -> None:
        """Resolve, so that uv is given the addresses that a build finds."""
        request = self.request()
        with begun(request, settings=self.home("lock"), talk=silent) as (shop, plan):
            found = locking.resolved(plan, shop, folder=request.locks, strict=False)
            self.lock_file.write_text(pylock.write(found.lock))
            self.python = shop.interpreter.path
            self.variables = dict(shop.variables)
        shutil.rmtree(self.folder / "lock")

    def uv(self, cache: str) -> dict[str, float]:
        """Let uv install the lock into a new environment; return the seconds."""
        env = self.folder / "uv-env"
        variables = {**self.variables, "UV_CACHE_DIR": str(self.folder / cache)}
        uv = find_uv_bin()
        subprocess.run([uv, "venv", "-q", "--python", self.python, env], env=variables, check=True)
        start = time.perf_counter()
        argv = [uv, "pip", "sync", "-q", str(self.lock_file), "--preview-features", "pylock"]
        argv += ["--link-mode", "copy", "--python", str(env)]
        subprocess.run(argv, env=variables, check=True)
        seconds = time.perf_counter() - start
        shutil.rmtree(env)
        return {"all": seconds}

    def build(self, home: str, link_mode: str = "copy") -> Receipt:
        place = self.home(home)
        return build.build(self.request(link_mode), settings=place, talk=silent).receipt

    def envdoctor(self, home: str, stages: tuple[str, ...]) -> dict[str, float]:
        """Build anew; return the seconds of these stages, alone and together."""
        found = self.build(home).seconds
        parts = {name: found.get(name, 0.0) for name in stages}
        rest = {f"({name})": found.get(name, 0.0) for name in ("resolve", "seal")}
        return {"all": sum(parts.values()), **parts, **rest}


def measure(bench: Bench, *, warm: int, cold: int) -> list[tuple[Series, Series]]:
    """Run all rounds; return each of our series with that of uv."""
    found = []
    if cold:
        pair = Series("envdoctor, cold"), Series("uv pip sync, cold")
        for _ in range(cold):
            for name in ("cold-uv", "cold"):
                shutil.rmtree(bench.folder / name, ignore_errors=True)
            pair[1].add(bench.uv("cold-uv"))
            pair[0].add(bench.envdoctor("cold", _COLD_STAGES))
        found.append(pair)
        for one, two in (("cold", "warm"), ("cold-uv", "warm-uv")):
            (bench.folder / one).rename(bench.folder / two)
    else:
        bench.uv("warm-uv")
    bench.envdoctor("warm", _WARM_STAGES)  # a home that was moved has new addresses
    if warm:
        pair = Series("envdoctor, warm"), Series("uv pip sync, warm")
        for _ in range(warm):
            pair[1].add(bench.uv("warm-uv"))
            pair[0].add(bench.envdoctor("warm", _WARM_STAGES))
        found.append(pair)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="cpu", help="name or path")
    parser.add_argument("--runs", type=int, default=5, help="warm rounds")
    parser.add_argument("--cold", type=int, default=0, help="cold rounds, which fetch everything")
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(options.profile, Path(folder))
        bench.write_lock()
        pairs = measure(bench, warm=options.runs, cold=options.cold)
        trees = [bench.build("warm", link_mode=mode).tree for mode in ("copy", "hardlink")]
    head = f"{'':<22} {'part':<10} {'median s':>8} {'min':>8} {'max':>8}\n"
    sys.stdout.write(head)
    for ours, theirs in pairs:
        ratio = statistics.median(ours.seconds["all"]) / statistics.median(theirs.seconds["all"])
        sys.stdout.write(f"{ours.text()}\n{theirs.text()}\nratio {ratio:.2f}\n")
    equal = trees[0] == trees[1]
    sys.stdout.write(f"copies and hard links give {'equal' if equal else 'DIFFERENT'} trees\n")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
