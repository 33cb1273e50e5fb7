from __future__ import annotations

import json
import random
import shutil
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from msgspec import structs

from tests.train.killed_runs import assert_same_training, kill_after, lines_of, run, trace
from tests.train.tiny_run import write_run
from train.best import Best
from train.checkpoint import load_checkpoint
from train.checkpoint_files import RANDOM_NAME, STATE_NAME
from train.checkpoint_store import CheckpointStore
from train.course import Course
from train.held_out import Evaluation
from train.inputs import load
from train.ledger import Ledger
from train.plan import Origin
from train.resume import Start, restore
from train.rng import random_state
from train.run_folder import RunFolder

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


def test_figures_are_those_of_the_checkpoint_and_not_of_the_weights_that_were_averaged(
    reference: Path,
) -> None:
    config = RunFolder.existing(reference).resolved_config()
    inputs = load(config)
    evaluation = Evaluation(
        config, target=inputs.pair.target, samples=inputs.held_out.samples, prompts=inputs.prompts
    )
    found = evaluation.held_out_figures(load_checkpoint(reference / "checkpoint"))
    told = json.loads((reference / "summary.json").read_text())["held_out"]["after"]
    assert found["loss"] == pytest.approx(told["loss"], rel=1e-6)


class Resumed(NamedTuple):
    """A run that goes on in this process, from a checkpoint that a test has changed."""

    course: Course
    best: Best
    checkpoint: Path
    random: dict[str, Any]


@pytest.fixture(scope="module", name="resumed")
def _resumed(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    config = RunFolder.existing(reference).resolved_config()
    config = structs.replace(config, train=structs.replace(config.train, weight_decay=0.5))
    inputs = load(config)
    latest = CheckpointStore(reference / "checkpoints").pointed("latest")
    assert latest is not None
    checkpoint = shutil.copytree(latest, tmp_path_factory.mktemp("changed") / latest.name)
    state = json.loads((checkpoint / STATE_NAME).read_text())
    state["best"] = {"score": config.checkpoint.best_on, "step": 2, "value": 0.5}
    cpu = torch.device("cpu")
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002  the generator that others may draw from
    torch.manual_seed(3)
    torch.save(random_state(cpu), checkpoint / RANDOM_NAME)
    torch.manual_seed(4)
    random.seed(4)
    start = Start(checkpoint, state, Origin(**state["origin"]))
    samples = inputs.training.samples
    course = Course.of(
        config, pair=inputs.pair, samples=samples, first_step=start.step, origin=start.origin
    )
    best = Best(config.checkpoint.best_on)
    ledger = Ledger(course.plan.num_steps, every_steps=1, report=lambda _: None)
    restore(course, start, ledger=ledger, best=best)
    return Resumed(course, best, checkpoint, random_state(cpu))


def test_random_generators_go_on_where_they_were(resumed: Resumed) -> None:
    """Nothing draws from them today, so that no metric would tell."""
    saved = torch.load(resumed.checkpoint / RANDOM_NAME, weights_only=True)
    found = dict(resumed.random)
    assert torch.equal(found.pop("torch"), saved.pop("torch"))
    assert found == saved


def test_the_best_so_far_is_remembered(resumed: Resumed) -> None:
    assert (resumed.best.step, resumed.best.value) == (2, 0.5)


def test_settings_of_the_optimizer_are_those_of_the_run_file(resumed: Resumed) -> None:
    optimizer = resumed.course.optimizer
    assert {group["weight_decay"] for group in optimizer.param_groups} >= {0.5}


def test_states_of_the_target_come_from_the_same_batches_again(resumed: Resumed) -> None:
    """In the last bits they depend on the batch in which the target first read a sample."""
    course, calls = resumed.course, []
    decoder = course.pair.target.model.get_decoder()
    hook = decoder.register_forward_hook(lambda *_: calls.append(1))
    first = course.order.plan.steps_per_epoch
    for batch in course.order.batches_before(first):
        kept = course.store.features(batch).tapped_BSF
        assert not calls
        fresh = course.pair.target.states(batch.ids_BS).tapped_BTF
        calls.clear()
        for row, sample in enumerate(batch.samples):
            num_tokens = len(sample.ids)
            assert torch.equal(kept[row, :num_tokens], fresh[row, :num_tokens])
    hook.remove()


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
