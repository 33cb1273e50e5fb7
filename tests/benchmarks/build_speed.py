"""Time `envdoctor build` against a bare `uv pip sync` of the same lock, side by side.

    python -m tests.benchmarks.build_speed --profile cpu [--runs N] [--cold N] [--folder DIR]

Warm: the wheels are local and uv has unpacked them; a build goes from the lock to a staging folder
that was held against its lock and, file by file, its RECORDs (stages inspect, install and verify of
the receipt; resolving and sealing are shown apart, modules are not imported), uv from an empty
environment to a full one. Cold: nothing is local, so both fetch, unpack and install (stages fetch
to verify). Both copy. Rounds alternate, figures are medians with the smallest and largest run.

Two environments, put together by copies and by hard links, must have the same hash of all packages.
Needs room for the wheels, for what is in them, and for one environment: 18 GB for cu128.
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
from envdoctor.fetch import located
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
    """A profile, and the folder where both contenders work."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.lock_file = folder / "pylock.bench.toml"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def settings(self) -> Settings:
        return settings.load({**os.environ, "ENVDOCTOR_HOME": str(self.home)})

    def request(self, link_mode: str = "copy") -> build.BuildRequest:
        wanted = profile.load_profile(self.name)
        no_imports = msgspec.structs.replace(wanted.check, imports=())
        section = msgspec.structs.replace(wanted.build, link_mode=link_mode)
        return build.BuildRequest(
            profile=msgspec.structs.replace(
                wanted,
                build=section,
                check=no_imports,
                libraries=profile.LibrariesSection(),  # they load once torch is imported
            ),
            locks=locking.folder_of(self.name),
            force=True,
        )

    def uv(self, cache: Path, *, is_cold: bool) -> dict[str, float]:
        """Let uv install the lock, as a build finds it, into a new environment."""
        request, env, uv = self.request(), self.folder / "uv-env", find_uv_bin()
        with begun(request, settings=self.settings, talk=silent) as (shop, plan):
            lock = locking.resolved(plan, shop, folder=request.locks, strict=False).lock
            self.lock_file.write_text(pylock.write(lock if is_cold else located(lock, shop)))
            variables = {**shop.variables, "UV_CACHE_DIR": str(cache)}
            python = shop.interpreter.path
        subprocess.run([uv, "venv", "-q", "--python", python, env], env=variables, check=True)
        argv = [uv, "pip", "sync", "-q", str(self.lock_file), "--preview-features", "pylock"]
        argv += ["--link-mode", "copy", "--python", str(env)]
        start = time.perf_counter()
        subprocess.run(argv, env=variables, check=True)
        seconds = time.perf_counter() - start
        shutil.rmtree(env)
        return {"all": seconds}

    def build(self, link_mode: str = "copy") -> Receipt:
        """Build anew, and throw the environment away."""
        found = build.build(self.request(link_mode), settings=self.settings, talk=silent).receipt
        shutil.rmtree(self.home / "envs")
        return found

    def envdoctor(self, stages: tuple[str, ...]) -> dict[str, float]:
        """Build anew; return the seconds of these stages, alone and together."""
        found = self.build().seconds
        parts = {name: found.get(name, 0.0) for name in stages}
        rest = {f"({name})": found.get(name, 0.0) for name in ("resolve", "seal")}
        return {"all": sum(parts.values()), **parts, **rest}


def measure_cold(bench: Bench, rounds: int) -> tuple[Series, Series]:
    """Run rounds in which both begin with nothing."""
    ours, theirs = Series("envdoctor, cold"), Series("uv pip sync, cold")
    for _ in range(rounds):
        cache = bench.folder / "cold-cache"
        theirs.add(bench.uv(cache, is_cold=True))
        shutil.rmtree(cache)
        shutil.rmtree(bench.home)
        ours.add(bench.envdoctor(_COLD_STAGES))
    return ours, theirs


def measure_warm(bench: Bench, rounds: int) -> tuple[Series, Series]:
    """Run rounds in which both have the wheels, and the same cache of unpacked ones."""
    ours, theirs = Series("envdoctor, warm"), Series("uv pip sync, warm")
    for _ in range(rounds):
        theirs.add(bench.uv(bench.home / "uv-cache", is_cold=False))
        ours.add(bench.envdoctor(_WARM_STAGES))
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="cpu", help="name or path")
    parser.add_argument("--runs", type=int, default=5, help="warm rounds")
    parser.add_argument("--cold", type=int, default=0, help="cold rounds, which fetch everything")
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(options.profile, Path(folder))
        pairs = [measure_cold(bench, options.cold)] if options.cold else []
        trees = [bench.build(link_mode=mode).tree for mode in ("copy", "hardlink")]
        pairs += [measure_warm(bench, options.runs)] if options.runs else []
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
