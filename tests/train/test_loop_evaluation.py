"""Evaluation in the loop finds the best step and disturbs nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.train.tiny_run import write_run
from train.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

EVERY = 2


def train(folder: Path, *, every_steps: int, best_on: str = "held_out_loss") -> Path:
    """Train the tiny run with evaluations; return the run folder."""
    run_file = folder / "run.toml"
    if not run_file.exists():
        write_run(folder)
    text = run_file.read_text().partition("[checkpoint]")[0]
    settings = f"every_steps = {every_steps}\ndecode_prompts = 2\n"
    text = text.replace("[eval]\n", f"[eval]\n{settings}")
    file = folder / f"every-{every_steps}-{best_on}.toml"
    file.write_text(f'{text}\n[checkpoint]\nbest_on = "{best_on}"\n')
    out = folder / file.stem
    assert main(["--config", str(file), "--out", str(out)]) == 0
    return out


def records(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [one for one in lines if one["kind"] == kind]


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loop-evaluation")


@pytest.fixture(scope="module", name="evaluated")
def _evaluated(folder: Path) -> Path:
    return train(folder, every_steps=EVERY)


def test_evaluations_are_recorded_with_their_figures(evaluated: Path) -> None:
    num_steps = records(evaluated, "step")[-1]["step"]
    found = records(evaluated, "evaluation")
    assert [one["step"] for one in found] == sorted(
        {*range(EVERY, num_steps + 1, EVERY), num_steps}
    )
    for one in found:
        assert one["lossless"] is True
        assert 1.0 <= one["acceptance_length"] <= 4.0
        assert 1.0 <= one["estimated_acceptance_length"] <= 4.0
        assert one["num_prompts"] == 2
        assert len(one["accuracy"]) == len(one["per_position"]) == 3
    summary = json.loads((evaluated / "summary.json").read_text())
    assert found[0]["held_out_loss"] < summary["held_out"]["before"]["loss"]


def test_best_points_at_the_best_step(evaluated: Path) -> None:
    found = records(evaluated, "evaluation")
    best = min(found, key=lambda one: one["held_out_loss"])
    name = (evaluated / "checkpoints" / "best").read_text().strip()
    assert name == f"step-{best['step']:08d}"
    assert [one["step"] for one in found if one["is_best"]][-1] == best["step"]


def test_evaluating_changes_no_weight(folder: Path, evaluated: Path) -> None:
    without = train(folder, every_steps=0)
    assert records(without, "evaluation") == []
    assert not (without / "checkpoints" / "best").exists()
    weights = [out / "checkpoint" / "model.safetensors" for out in (evaluated, without)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
