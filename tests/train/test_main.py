from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envdoctor import errors
from tests.train.tiny_run import write_run
from train.checkpoint import load_checkpoint
from train.exit_codes import ExitCode

ROOT = Path(__file__).parents[2]


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "train", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    stdout, stderr = process.communicate(timeout=120)
    assert stdout == ""
    return process.returncode, stderr


@pytest.fixture(scope="module", name="finished")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("run")
    code, stderr = finish(start("--config", write_run(folder), "--out", folder / "out"))
    assert code == 0, stderr
    return folder / "out", stderr


def test_run_fills_its_folder(finished: tuple[Path, str]) -> None:
    out, _ = finished
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "baseline.json",
        "checkpoint",
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "report.html",
        "summary.json",
    ]
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in steps] == list(range(1, len(steps) + 1))
    drafter = load_checkpoint(out / "checkpoint")
    assert drafter.config.block_size == 4


def test_summary_has_the_figures(finished: tuple[Path, str]) -> None:
    out, _ = finished
    summary = json.loads((out / "summary.json").read_text())
    assert summary["state"] == "finished"
    assert summary["held_out"]["after"]["loss"] < summary["held_out"]["before"]["loss"]
    decoding = summary["decoding"]
    assert decoding["lossless"] is True
    assert decoding["num_prompts"] == 3
    for name in ("untrained", "trained"):
        assert decoding[name]["mean"] >= 1.0
        assert decoding[name]["standard_error"] >= 0.0
        assert len(decoding[name]["per_position"]) == 3
    assert decoding["tokens_per_second"]["plain"] > 0
    assert summary["training"]["tokens_per_second"] > 0
    assert summary["machine"]["peak_memory_bytes"] > 10**7
    assert summary["machine"]["versions"]["torch"]
    assert set(summary["seconds"]) >= {"load", "evaluate_before", "train", "evaluate_after"}
    assert summary["config"] == json.loads((out / "config.json").read_text())
    assert summary["config"]["train"]["betas"] == [0.9, 0.95]


def test_person_sees_the_figures_without_colour(finished: tuple[Path, str]) -> None:
    _, stderr = finished
    for words in ("held-out loss", "acceptance length", "equals plain greedy decoding"):
        assert words in stderr
    assert "\x1b" not in stderr
    assert "\r" not in stderr


def test_folder_of_another_run_is_left_alone(finished: tuple[Path, str]) -> None:
    out, _ = finished
    before = (out / "summary.json").read_bytes()
    code, stderr = finish(start("--config", out.parent / "run.toml", "--out", out))
    assert code == 2
    assert stderr == (
        f"error: --out {out}: holds files already; wanted a new or empty folder;"
        f" --resume {out} goes on with the run\n"
    )
    assert (out / "summary.json").read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param(
            "epochs =", "epoch =", "train.epoch: unknown key; did you mean train.epochs?", id="key"
        ),
        pytest.param(
            "block_size = 4",
            'block_size = "4"',
            "draft.block_size: found '4', wanted a whole number at least 2 at most 128",
            id="type",
        ),
    ],
)
def test_bad_run_file_is_one_line_and_exit_2(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    run_file = write_run(tmp_path)
    run_file.write_text(run_file.read_text().replace(old, new))
    code, stderr = finish(start("--config", run_file, "--out", tmp_path / "out"))
    assert (code, stderr) == (2, f"error: {run_file}: {problem}\n")
    assert not (tmp_path / "out").exists()


def test_missing_data_file_is_one_line_and_exit_2(tmp_path: Path) -> None:
    run_file = write_run(tmp_path)
    (tmp_path / "train.jsonl").unlink()
    code, stderr = finish(start("--config", run_file, "--out", tmp_path / "out"))
    assert (code, stderr) == (2, f"error: data.train: no file at {tmp_path / 'train.jsonl'}\n")


def test_sigterm_saves_and_exits_130(tmp_path: Path) -> None:
    process = start("--config", write_run(tmp_path, epochs=100_000), "--out", tmp_path / "out")
    metrics = tmp_path / "out" / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while not (metrics.exists() and metrics.read_text()) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    code, stderr = finish(process)
    assert code == 130, stderr
    load_checkpoint(tmp_path / "out" / "checkpoint")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["state"] == "interrupted"
    assert summary["training"]["steps"] == len(metrics.read_text().splitlines())
    assert "decoding" not in summary


def test_layout_of_threads_is_refused_before_anything_loads(tmp_path: Path) -> None:
    run_file = write_run(tmp_path)
    run_file.write_text(run_file.read_text() + '[layout]\nmode = "threads"\ndrafters = 3\n')
    code, stderr = finish(start("--config", run_file, "--out", tmp_path / "out"))
    assert code == 2
    assert stderr.startswith("error: layout.mode: found threads, ")
    assert stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_training_that_goes_astray_ends_at_once_and_keeps_what_was_before(tmp_path: Path) -> None:
    run_file, out = write_run(tmp_path, epochs=50), tmp_path / "out"
    arguments = ("--set", "train.peak_lr=1e30", "--set", "checkpoint.every_steps=1")
    code, stderr = finish(start("--config", run_file, "--out", out, *arguments))
    assert code == 1, stderr
    assert stderr.splitlines()[-1] == (
        "error: the training went astray: step 2: found a gradient norm of nan and a loss of nan,"
        " wanted finite numbers; the newest checkpoint is of step 1;"
        f" --resume {out} --set train.peak_lr=LOWER goes on"
    )
    load_checkpoint(out / "checkpoint")
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["step"], last["loss"], last["grad_norm"]) == (2, None, None)


def test_exit_codes_are_those_of_envdoctor() -> None:
    theirs = {code.name: int(code) for code in errors.ExitCode}
    assert {code.name: int(code) for code in ExitCode}.items() <= theirs.items()
