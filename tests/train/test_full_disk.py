"""A disk that fills up while a run saves: what is there stays, and the run goes on or ends cleanly.

The disk is a small file system in memory, which a process may mount in a namespace of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.killed_runs import assert_same_training, run, trace
from tests.train.tiny_run import write_run
from train.checkpoint_store import CheckpointStore, damage

ROOT = Path(__file__).parents[2]
ON_SMALL_DISK = """\
mount -t tmpfs -o size={size} none disk || exit 99
{before}
PYTHONPATH={root} {python} -m train --config {run_file} --out disk/out 2> log
code=$?
rm -f disk/filler
cp -a disk/. kept
exit $code
"""
UNTIL_A_SAVE_FAILS = """\
head -c {size} /dev/zero > disk/filler
(until grep -q 'could not be saved' log; do sleep 0.02; done; rm disk/filler) 2> /dev/null &
"""


def run_on_small_disk(folder: Path, run_file: Path, *, size: int, before: str = "") -> int:
    """Run with so many bytes of disk; what is on it at the end lies in `kept`."""
    for name in ("disk", "kept"):
        (folder / name).mkdir()
    script = ON_SMALL_DISK.format(
        size=size, before=before, root=ROOT, python=sys.executable, run_file=run_file
    )
    argv = ["unshare", "--map-root-user", "--mount", "sh", "-c", script]
    if not shutil.which("unshare"):
        pytest.skip("there is no program `unshare` to mount a small disk with")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, cwd=folder, env=environment, check=False, timeout=500)
    if done.returncode in (1, 99) and not (folder / "log").exists():
        pytest.skip("no small disk may be mounted here")
    return done.returncode


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a disk with room; its run file lies beside it."""
    folder = tmp_path_factory.mktemp("whole")
    run_file = write_run(folder, epochs=8)
    run_file.write_text(run_file.read_text() + "\n[checkpoint]\nevery_steps = 4\nkeep = 2\n")
    code, stderr = run("--config", run_file, "--out", folder / "out", stderr=folder / "log")
    assert code == 0, stderr
    return folder / "out"


def checkpoint_bytes(out: Path) -> int:
    return sum(path.stat().st_size for path in (out / "checkpoint").iterdir())


def test_full_disk_ends_the_run_cleanly_and_keeps_the_earlier_checkpoint(
    whole: Path, tmp_path: Path
) -> None:
    room = checkpoint_bytes(whole) * 3 // 2  # for one checkpoint, but not for the next
    code = run_on_small_disk(tmp_path, whole.parent / "run.toml", size=room)
    said = (tmp_path / "log").read_text()
    assert code == 7, said
    assert "Traceback" not in said
    assert "warning: step 8 could not be saved: [Errno 28] No space left on device" in said
    assert "earlier checkpoints stay" in said
    last = said.splitlines()[-1]
    assert last.startswith("error: step 32 could not be saved: [Errno 28]")
    assert "the newest checkpoint is of step 4; --resume disk/out goes on from there" in last
    out = tmp_path / "kept" / "out"
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == [
        "latest",
        "step-00000004",
    ]
    code, stderr = run("--resume", out, stderr=tmp_path / "log2")
    assert code == 0, stderr
    assert_same_training(out, whole)


def test_older_checkpoints_make_room_for_newer_ones(whole: Path, tmp_path: Path) -> None:
    """There is room for the two that are kept, but not for a third while it is being written."""
    room = checkpoint_bytes(whole) * 5 // 2
    code = run_on_small_disk(tmp_path, whole.parent / "run.toml", size=room)
    said = (tmp_path / "log").read_text()
    assert code == 0, said
    assert "could not be saved" not in said
    for step in range(12, 33, 4):
        assert f"warning: step {step}: [Errno 28] No space left on device" in said
    out = tmp_path / "kept" / "out"
    assert CheckpointStore(out / "checkpoints").steps() == [28, 32]
    assert_same_training(out, whole)


@pytest.mark.slow
def test_run_saves_again_once_there_is_room(whole: Path, tmp_path: Path) -> None:
    run_file = whole.parent / "long.toml"
    run_file.write_text(
        (whole.parent / "run.toml").read_text().replace("epochs = 8", "epochs = 60")
    )
    size = checkpoint_bytes(whole)
    before = UNTIL_A_SAVE_FAILS.format(size=5 * size)
    code = run_on_small_disk(tmp_path, run_file, size=11 * size // 2, before=before)
    said = (tmp_path / "log").read_text()
    assert code == 0, said
    assert "could not be saved: [Errno 28]" in said
    out = tmp_path / "kept" / "out"
    store = CheckpointStore(out / "checkpoints")
    assert store.steps() == [236, 240]
    assert [damage(store.path(step)) for step in store.steps()] == [None, None]
    assert [one["step"] for one in trace(out)] == list(range(1, 241))


@pytest.mark.parametrize("size", [4096, 12288])
def test_disk_that_is_full_from_the_start_is_one_line(
    whole: Path, tmp_path: Path, size: int
) -> None:
    """A page is too little for the settings, three are too little for the first figures."""
    assert run_on_small_disk(tmp_path, whole.parent / "run.toml", size=size) == 7
    (line,) = [one for one in (tmp_path / "log").read_text().splitlines() if "error" in one]
    assert "No space left on device" in line
    assert not list((tmp_path / "kept" / "out").glob(".*"))
