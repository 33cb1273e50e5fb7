from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tests.train.killed_runs import assert_same_training, kill_after, lines_of, run, trace
from tests.train.tiny_run import write_run
from train.checkpoint_store import RANDOM_NAME, SUMS_NAME, CheckpointStore
from train.rng import random_state, set_random_state

if TYPE_CHECKING:
    from pathlib import Path

MOST_STATE = """\
[train]
loss = "dpace-distill"
optimizer = "muon"
schedule = "wsd"
ema_decay = 0.9
"""
SAVES_OFTEN = """
[checkpoint]
every_steps = 2
keep = 2
"""


@pytest.fixture(scope="module", name="reference")
def _reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run with two optimizers and an average, and its run file beside it."""
    folder = tmp_path_factory.mktemp("reference")
    run_file = write_run(folder, epochs=6)
    text = run_file.read_text().replace("[train]\n", MOST_STATE)
    run_file.write_text(text + SAVES_OFTEN)
    code, stderr = run("--config", run_file, "--out", folder / "out", stderr=folder / "stderr")
    assert code == 0, stderr
    return folder / "out"


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Path:
    return tmp_path / "stderr"


def begin_or_go_on(out: Path, reference: Path) -> tuple[str | Path, ...]:
    if out.exists():
        return ("--resume", out)
    return ("--config", reference.parent / "run.toml", "--out", out)


def test_killed_run_goes_on_bit_for_bit(reference: Path, tmp_path: Path, log: Path) -> None:
    out, num_steps = tmp_path / "out", len(trace(reference))
    for kill_at in (1, num_steps // 3, 2 * num_steps // 3):
        arguments = begin_or_go_on(out, reference)
        assert kill_after(out, kill_at, *arguments, stderr=log) == -signal.SIGKILL
    code, stderr = run("--resume", out, stderr=log)
    assert code == 0, stderr
    assert_same_training(out, reference)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["state"] == "finished"
    whole = json.loads((reference / "summary.json").read_text())
    assert summary["held_out"] == whole["held_out"]
    for name in ("steps", "num_steps", "num_tokens"):
        assert summary["training"][name] == whole["training"][name]


def test_random_generators_go_on_where_they_were(
    reference: Path, tmp_path: Path, log: Path
) -> None:
    """Nothing draws from them today, so that no metric would tell."""
    out = shutil.copytree(reference, tmp_path / "out", symlinks=True)
    checkpoint = CheckpointStore(out / "checkpoints").pointed("latest")
    assert checkpoint is not None
    cpu = torch.device("cpu")
    own = random_state(cpu)
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002  the generator that others may draw from
    torch.manual_seed(3)
    torch.save(saved := random_state(cpu), checkpoint / RANDOM_NAME)
    set_random_state(own, cpu)
    sums = checkpoint / SUMS_NAME
    digest = hashlib.sha256((checkpoint / RANDOM_NAME).read_bytes()).hexdigest()
    kept = [line for line in sums.read_text().splitlines() if not line.endswith(RANDOM_NAME)]
    sums.write_text("\n".join([*kept, f"{digest}  {RANDOM_NAME}"]) + "\n")
    code, stderr = run("--resume", out, "--set", "train.epochs=7", stderr=log)
    assert code == 0, stderr
    assert f"going on from {checkpoint.name}" in stderr
    found = torch.load(out / "checkpoint" / RANDOM_NAME, weights_only=True)
    assert torch.equal(found.pop("torch"), saved.pop("torch"))
    assert found == saved


@pytest.mark.slow
def test_run_killed_many_times_goes_on_bit_for_bit(tmp_path: Path, log: Path) -> None:
    """24 kills in one run, each a random number of steps after the last, also while saving."""
    run_file = write_run(tmp_path, epochs=40)
    run_file.write_text(run_file.read_text() + SAVES_OFTEN)
    reference, out = tmp_path / "reference", tmp_path / "out"
    code, stderr = run("--config", run_file, "--out", reference, stderr=log)
    assert code == 0, stderr
    num_kills, num_steps, rng = 24, len(trace(reference)), random.Random(6)  # noqa: S311
    for kill in range(num_kills):
        arguments = ("--resume", out) if out.exists() else ("--config", run_file, "--out", out)
        # Never past the end: the run must still be there to be killed.
        furthest = num_steps * (kill + 1) // (num_kills + 1)
        kill_at = min(len(lines_of(out)) + rng.randint(0, 4), furthest)
        assert kill_after(out, kill_at, *arguments, stderr=log) == -signal.SIGKILL
    code, stderr = run("--resume", out, stderr=log)
    assert code == 0, stderr
    assert_same_training(out, reference)
