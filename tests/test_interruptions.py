"""Builds that are killed, or whose disk is full: nothing is lost, and the next one succeeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import pytest

from envdoctor import drift, receipt, store
from envdoctor.errors import ExitCode
from envdoctor.store import Store
from tests.workbench import ROOT, Bench, wait_for, with_own_mounts

if TYPE_CHECKING:
    from pathlib import Path

STAGES = ["stage prepare", "stage resolve", "tool install", "stage import", "note  in place"]
NEVER = 10**6


@dataclass
class Witness:
    """Looks at a bench after each kill, and knows what was there before it."""

    bench: Bench

    def __post_init__(self) -> None:
        self.bench.build(self.bench.write(torch="9.9.1"))
        self.bench.build(self.bench.write())
        self.links = self.seen()

    @property
    def place(self) -> Store:
        return Store(self.bench.home, "tiny")

    def seen(self) -> tuple[str | None, str | None]:
        return self.place.linked("current"), self.place.linked("previous")

    def look(self) -> None:
        """Hold both generations against their manifests, and the links against those before."""
        current, previous = self.seen()
        assert current
        assert previous
        assert (current, previous) == self.links or previous == self.links[0] != current
        for name in (current, previous):
            assert receipt.read(self.place.receipt(name)), name
            assert drift.find(self.place.envs / name).changes == (), name
        assert self.bench.torch_of_current() in {"9.9.0+cpu", "9.9.1+cpu"}
        self.links = current, previous

    def build(self, torch: str) -> None:
        """Build to the end; see that it is what was asked for, and that nothing lies about."""
        self.bench.build(self.bench.write(torch=torch))
        self.look()
        assert self.bench.torch_of_current() == f"{torch}+cpu"
        assert not self.bench.left_over()
        receipts = {path.stem for path in self.bench.envs.glob("receipts/*.json")}
        assert set(self.place.generations()) <= receipts

    def run(self, at: int, *arguments: str) -> list[str]:
        """Run a command that dies before its change number `at`; return the changes if it ends."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.killed_process", str(at), *arguments],
            cwd=ROOT,
            env={**os.environ, "ENVDOCTOR_HOME": str(self.bench.home)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode in {0, -9}, done.stderr
        assert (done.returncode == 0) == bool(done.stdout), at
        self.look()
        changes: list[str] = json.loads(done.stdout or "[]")
        return changes


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(Bench(tmp_path))


def test_build_killed_before_changes_from_the_seal_on(witness: Witness) -> None:
    """After the last program has ended, some twenty changes put an environment in place.

    A third of them here; all of them in the slow test below.
    """
    path = witness.bench.write(torch="9.9.1")
    changes = witness.run(NEVER, "build", path, "force")
    first = len(changes) - changes[::-1].index("subprocess.Popen")
    assert len(changes) - first > 12
    for at in range(first, len(changes), 3):
        assert not witness.run(at, "build", path, "force")
    witness.build("9.9.0")


def test_rollback_killed_before_each_change_is_done_or_not(witness: Witness) -> None:
    changes = witness.run(NEVER, "rollback")
    assert "os.symlink" in changes
    for at in range(len(changes)):
        before = witness.seen()
        assert not witness.run(at, "rollback")
        assert witness.seen() in {before, before[::-1]}
    witness.build("9.9.0")


@pytest.mark.parametrize("stage", STAGES)
def test_build_killed_at_a_stage_loses_nothing_and_the_next_one_succeeds(
    tmp_path: Path, stage: str
) -> None:
    bench = Bench(tmp_path)
    bench.build(bench.write())
    path = bench.write(torch="9.9.1")
    process = bench.start(path)
    wait_for(process, stage)
    process.kill()
    process.communicate()
    expected = {"9.9.0+cpu", "9.9.1+cpu"} if stage.startswith(("note", "done")) else {"9.9.0+cpu"}
    assert bench.torch_of_current() in expected
    bench.build(path)
    assert bench.torch_of_current() == "9.9.1+cpu"
    assert not bench.left_over()


@pytest.mark.slow
def test_two_hundred_kills_break_nothing(witness: Witness) -> None:
    """Before every change of a new build, of one that finds its environment, and of a rollback;
    then at random moments, which hit what uv does. About two minutes on an idle machine."""
    path = {torch: witness.bench.write(torch=torch) for torch in ("9.9.0", "9.9.1")}["9.9.1"]
    kills = 0
    for arguments in (["build", path, "force"], ["build", path], ["rollback"], ["prune"]):
        for at in range(len(witness.run(NEVER, *arguments))):
            kills += not witness.run(at, *arguments)
    witness.build("9.9.0")
    random = Random(0)  # noqa: S311  when to kill is no secret
    longest = _seconds_of_a_build(witness)
    for number in range(max(80, 225 - kills)):
        process = witness.bench.start(witness.bench.write(torch=f"9.9.{number % 2}"), force=True)
        time.sleep(random.uniform(0.0, longest))
        process.kill()
        process.communicate()
        kills += process.returncode == -9
        witness.look()
        if number % 20 == 0:
            witness.build("9.9.0")
    witness.build("9.9.1")
    assert kills >= 200


def _seconds_of_a_build(witness: Witness) -> float:
    start = time.monotonic()
    witness.bench.start(witness.bench.write(), force=True).communicate()
    witness.look()
    return time.monotonic() - start


FULL = """
import os, subprocess, sys
from pathlib import Path
from tests.workbench import DRIVER, ROOT, Bench
mount, reports = Path(sys.argv[1]), []
mount.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "envdoctor", mount], check=True)
bench = Bench(mount)
bench.build(bench.write())
before = bench.current.resolve()
path = bench.write(torch="9.9.1")
status = os.statvfs(mount)
free = status.f_bavail * status.f_frsize
step = 1 << 15
for room in range(0, int(sys.argv[2]) * step, step):
    with (mount / "filler").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, max(free - room, 1))
    process = bench.start(path, force=True)
    said = process.communicate()[0].splitlines()[-1]
    assert bench.current.resolve() == before or process.returncode == 0, said
    bench.torch_of_current()
    (mount / "filler").unlink()
    print(room, process.returncode, said, flush=True)
    if process.returncode == 0:
        break
bench.build(path)
assert bench.torch_of_current() == "9.9.1+cpu"
assert not bench.left_over()
"""


def _full_disk(folder: Path, steps: int) -> list[list[str]]:
    """Build on a small disk with ever more room; return what each build said when it ended."""
    argv = [*with_own_mounts('exec "$@"'), sys.executable, "-c", FULL, str(folder / "m")]
    done = subprocess.run(
        [*argv, str(steps)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split(maxsplit=2) for line in done.stdout.splitlines()]


def test_full_disk_ends_with_7_and_loses_nothing(tmp_path: Path) -> None:
    ends = _full_disk(tmp_path, 4)
    assert {code for _, code, _ in ends} == {str(int(ExitCode.SPACE))}, ends
    assert all("No space left" in said for *_, said in ends), ends


@pytest.mark.slow
def test_disk_that_is_full_at_any_point_loses_nothing(tmp_path: Path) -> None:
    ends = _full_disk(tmp_path, 120)
    assert {code for _, code, _ in ends[:-1]} == {str(int(ExitCode.SPACE))}, ends
    assert ends[-1][1] == "0"
    assert len(ends) > 10


@pytest.mark.parametrize("limit", [0, 100, 1000, 5000, 20000])
def test_limit_on_file_sizes_ends_with_7_and_loses_nothing(tmp_path: Path, limit: int) -> None:
    bench = Bench(tmp_path)
    first = bench.build(bench.write())
    process = bench.start(bench.write(torch="9.9.1"), limit=limit)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == ExitCode.SPACE, said
    assert bench.current.resolve() == first.path
    store.clean(Store(bench.home, "tiny"))
    bench.build(bench.write(torch="9.9.1"))
    assert bench.torch_of_current() == "9.9.1+cpu"
