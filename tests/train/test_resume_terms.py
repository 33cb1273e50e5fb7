"""What a run can be resumed with, and what is refused."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.torch import load_file, save_file

from tests.train.killed_runs import assert_same_training, run, start, trace
from tests.train.tiny_run import conversation, write_run
from train.contract import differences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SAVES_OFTEN = """
[checkpoint]
every_steps = 2
keep = 2
"""
CONTRACT = {
    "target.dtype": "float32",
    "target.weights": "aa",
    "draft.block_size": 16,
    "draft.mask_token_id": 3,
    "draft.target_layer_ids": [1, 9, 17],
    "draft.vocab_size": 49152,
    "draft.hidden_size": 576,
    "train.micro_batch": 2,
    "data.train": "902 usable conversations (aa)",
}


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        pytest.param({}, [], id="same"),
        pytest.param(
            {"draft.block_size": 8}, [r"draft\.block_size: found 8, wanted 16, "], id="block"
        ),
        pytest.param(
            {"draft.mask_token_id": 4}, [r"draft\.mask_token_id: found 4, wanted 3, "], id="mask"
        ),
        pytest.param(
            {"draft.target_layer_ids": [1, 15]},
            [r"draft\.target_layer_ids: found \[1, 15\], wanted \[1, 9, 17\], "],
            id="layers",
        ),
        pytest.param(
            {"draft.vocab_size": 1, "draft.hidden_size": 2},
            [r"vocab_size: found 1, wanted 49152, ", r"hidden_size: found 2, wanted 576, "],
            id="two",
        ),
        pytest.param(
            {"target.weights": "bb"}, [r"target\.weights: found bb, wanted aa"], id="target"
        ),
        pytest.param(
            {"target.dtype": "bfloat16", "target.weights": "bb"},
            [r"target\.dtype: found bfloat16, wanted float32"],
            id="dtype-explains-the-weights",
        ),
        pytest.param(
            {"data.train": "1100 usable conversations (bb)"},
            [r"data\.train: found 1100 .* wanted 902 .*; --allow-data-change goes on"],
            id="data",
        ),
    ],
)
def test_each_difference_names_the_field_and_both_values(
    changed: dict[str, Any], lines: list[str]
) -> None:
    found = differences({**CONTRACT, **changed}, CONTRACT, allow_data_change=False)
    assert len(found) == len(lines)
    for line, pattern in zip(found, lines, strict=True):
        assert re.match(f".*{pattern}", line), line


def test_data_may_change_where_the_user_says_so() -> None:
    changed = {**CONTRACT, "data.train": "x", "draft.block_size": 8}
    (line,) = differences(changed, CONTRACT, allow_data_change=True)
    assert line.startswith("draft.block_size")


@pytest.fixture(scope="module", name="stopped")
def _stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that SIGTERM stopped after a few of its steps; the run file lies beside it."""
    folder = tmp_path_factory.mktemp("stopped")
    run_file = write_run(folder, epochs=1000)
    text = run_file.read_text().replace("every_steps = 1", "every_steps = 3") + SAVES_OFTEN
    # Constant, whatever the length of the run.
    text = text.replace("[train]", "[train]\nwarmup_fraction = 0.0\nfinal_lr_fraction = 1.0")
    run_file.write_text(text)
    out, log = folder / "out", folder / "stderr"
    process = start("--config", run_file, "--out", out, stderr=log)
    deadline = time.monotonic() + 240
    while not (out / "metrics.jsonl").exists() or len(trace(out)) < 3:
        assert process.is_alive(), log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid or 0, signal.SIGTERM)
    process.join()
    assert process.exitcode == 130, log.read_text()
    assert f"--resume {out} goes on" in log.read_text()
    return out


@pytest.fixture(name="copy")
def _copy(stopped: Path, tmp_path: Path) -> Path:
    """The stopped run, and data of its own that a test may change."""
    shutil.copytree(stopped, tmp_path / "out", symlinks=True)
    for name in ("train.jsonl", "held-out.jsonl", "run.toml"):
        shutil.copy(stopped.parent / name, tmp_path / name)
    (tmp_path / "model").symlink_to(stopped.parent / "model")
    return tmp_path / "out"


def shortened(copy: Path) -> Path:
    """Let the run file end the run a few steps after where it was stopped."""
    run_file, text = copy.parent / "run.toml", (copy.parent / "run.toml").read_text()
    run_file.write_text(
        text.replace("epochs = 1000", f"epochs = 1000\nmax_steps = {steps(copy) + 5}")
    )
    return run_file


def steps(out: Path) -> int:
    state = json.loads((out / "checkpoint" / "state.json").read_text())
    return int(state["step"])


def test_stopped_run_is_saved_where_it_stopped(stopped: Path) -> None:
    summary = json.loads((stopped / "summary.json").read_text())
    assert summary["state"] == "interrupted"
    assert summary["training"]["steps"] == steps(stopped)
    state = json.loads((stopped / "checkpoint" / "state.json").read_text())
    assert state["config"] == json.loads((stopped / "config.json").read_text())
    assert state["versions"]["torch"]
    assert state["receipt"] is None
    readme = (stopped / "README.md").read_text()
    for words in ("--resume", "SGLang", "vLLM", "RUN/checkpoint"):
        assert words in readme


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        pytest.param(
            "block_size = 4", "block_size = 3", "draft.block_size: found 3, wanted 4", id="block"
        ),
        pytest.param(
            "micro_batch = 2", "micro_batch = 3", "train.micro_batch: found 3, wanted 2", id="batch"
        ),
        pytest.param("epochs = 1000", "epochs = 1", "train.epochs: found 1", id="fewer-steps"),
    ],
)
def test_what_does_not_fit_the_checkpoint_is_refused_and_nothing_changes(
    copy: Path, tmp_path: Path, old: str, new: str, line: str
) -> None:
    run_file = copy.parent / "run.toml"
    run_file.write_text(run_file.read_text().replace(old, new))
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    code, stderr = run("--config", run_file, "--resume", copy, stderr=tmp_path / "log")
    assert code == 2
    assert re.search(f"^error: .*{re.escape(line)}", stderr, re.MULTILINE), stderr
    after = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    changed = {path.name for path in after if before.get(path) != after[path]}
    # A run that is too short does fit the checkpoint: what it measures first may be measured.
    assert changed <= ({"baseline.json"} if line.startswith("train.epochs") else set())


def test_other_weights_of_the_target_are_refused(copy: Path, tmp_path: Path) -> None:
    model = copy.parent / "model"
    source = model.resolve()
    model.unlink()
    shutil.copytree(source, model)
    weights = load_file(model / "model.safetensors")
    name = min(weights)
    save_file({**weights, name: -weights[name]}, model / "model.safetensors", {"format": "pt"})
    code, stderr = run("--config", shortened(copy), "--resume", copy, stderr=tmp_path / "log")
    assert code == 2
    assert re.search(r"^error: .*target\.weights: found \w+, wanted \w+", stderr, re.MULTILINE), (
        stderr
    )


def test_grown_data_is_refused_and_taken_by_explicit_choice(copy: Path, tmp_path: Path) -> None:
    data, log = copy.parent / "train.jsonl", tmp_path / "log"
    with data.open("a") as stream:
        stream.write(json.dumps(conversation("new", "abcdefghabcdefgh")) + "\n")
    run_file = shortened(copy)
    code, stderr = run("--config", run_file, "--resume", copy, stderr=log)
    assert code == 2
    assert "data.train: found 7 usable conversations" in stderr
    assert "wanted 6 usable conversations" in stderr
    assert "--allow-data-change" in stderr
    before = json.loads((copy / "checkpoint" / "state.json").read_text())
    code, stderr = run("--config", run_file, "--resume", copy, "--allow-data-change", stderr=log)
    assert code == 0, stderr
    assert "begins anew" in stderr
    state = json.loads((copy / "checkpoint" / "state.json").read_text())
    assert state["origin"] == {"step": before["step"], "epoch": before["epoch"]}
    assert state["contract"]["data.train"].startswith("7 usable")
    numbers = [one["step"] for one in trace(copy)]
    assert numbers == sorted(set(numbers))


def test_stopped_run_ends_as_if_it_had_not_been_stopped(copy: Path, tmp_path: Path) -> None:
    """It was stopped between two reports: what they sum up is not lost."""
    log, whole, run_file = tmp_path / "log", tmp_path / "whole", shortened(copy)
    for arguments in (("--out", whole), ("--resume", copy)):
        code, stderr = run("--config", run_file, *arguments, stderr=log)
        assert code == 0, stderr
    assert_same_training(copy, whole)


def test_finished_run_says_so_and_goes_on_only_when_extended(copy: Path, tmp_path: Path) -> None:
    run_file, log = shortened(copy), tmp_path / "log"
    code, stderr = run("--config", run_file, "--resume", copy, stderr=log)
    assert code == 0, stderr
    assert "changed since then: train.max_steps: None -> " in stderr
    assert "the learning rate follows" in stderr
    assert "buckets" not in stderr
    finished_at = steps(copy)
    code, stderr = run("--resume", copy, stderr=log)
    assert (code, stderr) == (
        0,
        f"{copy}: the run is finished; see {copy / 'summary.json'}\n",
    )
    text = run_file.read_text()
    run_file.write_text(
        text.replace(f"max_steps = {finished_at}", f"max_steps = {finished_at + 3}")
    )
    code, stderr = run("--config", run_file, "--resume", copy, stderr=log)
    assert code == 0, stderr
    assert steps(copy) == finished_at + 3
    assert json.loads((copy / "summary.json").read_text())["state"] == "finished"


def test_broken_newest_checkpoint_falls_back_and_ends_the_same(copy: Path, tmp_path: Path) -> None:
    log, other = tmp_path / "log", tmp_path / "other"
    shutil.copytree(copy, other, symlinks=True)
    run_file = shortened(copy)
    weights = copy / "checkpoint" / "optimizer.pt"
    content = bytearray(weights.read_bytes())
    content[len(content) // 3] ^= 4
    weights.write_bytes(content)
    for out in (copy, other):
        code, stderr = run("--config", run_file, "--resume", out, stderr=log)
        assert code == 0, stderr
        assert ("warning: checkpoint" in stderr) == (out == copy), stderr
    assert_same_training(copy, other)


def test_run_that_another_process_works_on_is_left_alone(stopped: Path, tmp_path: Path) -> None:
    descriptor = os.open(stopped, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        code, stderr = run("--resume", stopped, stderr=tmp_path / "log")
    finally:
        os.close(descriptor)
    assert (code, stderr) == (8, f"error: {stopped}: another process works on this run\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(
            lambda out: [], "--config: missing, wanted a run file; or --resume RUN", id="-"
        ),
        pytest.param(
            lambda out: ["--resume", out, "--out", "x"], "--out: wanted without --resume", id="out"
        ),
        pytest.param(
            lambda out: ["--resume", out / "checkpoints"],
            r"found a part of the run .*, wanted the folder that --out named",
            id="part",
        ),
        pytest.param(
            lambda out: ["--resume", out / "checkpoint"], "found a part of the run", id="checkpoint"
        ),
        pytest.param(lambda out: ["--resume", out / "x"], "found nothing there", id="missing"),
        pytest.param(
            lambda out: ["--config", out.parent / "run.toml", "--allow-data-change"],
            "--allow-data-change: wanted only with --resume RUN",
            id="allow",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_one_line_and_exit_2(
    stopped: Path, tmp_path: Path, arguments: Callable[[Path], list[Any]], problem: str
) -> None:
    code, stderr = run(*arguments(stopped), stderr=tmp_path / "log")
    assert code == 2
    assert re.fullmatch(f"error: .*{problem}.*\n", stderr), stderr
