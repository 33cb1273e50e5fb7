"""`python -m train evaluate` on runs that were made in a moment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.tiny_run import make_model, make_tokenizer, write_jsonl
from tests.train.trained_run import write_trained_run
from train.__main__ import main
from train.evaluation_output import EvaluationOutput

ROOT = Path(__file__).parents[2]
NUM_NEW = 12


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        write_trained_run(folder, seed=seed)
    prompts = [
        {"id": f"p{i}", "messages": [{"role": "user", "content": "x" * i}]} for i in (1, 9, 4)
    ]
    write_jsonl(folder / "prompts.jsonl", prompts)
    return folder


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["evaluate", *map(str, arguments), "--device", "cpu"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def report_of(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    code, out, err = evaluate(
        capsys, *arguments, "--format", "json", "--max-new-tokens", str(NUM_NEW)
    )
    assert code == 0, err
    report: dict[str, Any] = json.loads(out)
    return report


def test_figures_fit_each_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(
        capsys,
        *(folder / "out-0", folder / "out-1", "--prompts", folder / "prompts.jsonl"),
        *("--tree-budget", "3", "20", "--batch", "2", "--timed-prompts", "1"),
        *("--json", folder / "figures.json"),
    )
    assert report == json.loads((folder / "figures.json").read_text())
    assert report["state"] == "finished"
    assert [run["state"] for run in report["runs"]] == ["finished", "finished"]
    assert [one["id"] for one in report["prompts"]] == ["p1", "p9", "p4"]
    plain = report["plain"]
    assert plain["num_tokens"] == sum(one["num_tokens"] for one in report["prompts"])
    assert plain["num_shorter"] == sum(one["num_tokens"] < NUM_NEW for one in report["prompts"])
    assert plain["num_looping"] == sum(one["is_looping"] for one in report["prompts"])
    assert plain["tokens_per_second"] > 0
    for run in report["runs"]:
        assert list(run["ways"]) == ["chain", "tree-3", "tree-20"]
        for way in run["ways"].values():
            every, groups = way["acceptance"]["all"], way["acceptance"]
            assert sum(every["histogram"]) == every["num_rounds"]
            tokens = sum(n * count for n, count in enumerate(every["histogram"], start=1))
            assert every["pooled"] == pytest.approx(tokens / every["num_rounds"])
            lengths = way["acceptance_length_by_prompt"]
            assert every["mean"] == pytest.approx(sum(lengths) / 3)
            parts = [groups[name]["num_prompts"] for name in ("not_looping", "looping")]
            assert sum(parts) == every["num_prompts"] == 3
            assert parts[1] == plain["num_looping"]
            assert way["lossless"] == {"num_equal": 3, "num_prompts": 3, "divergences": []}
            assert way["speed_up"] == pytest.approx(
                way["tokens_per_second"] / plain["tokens_per_second"]
            )
    spread = report["spread"]["chain"]
    means = [run["ways"]["chain"]["acceptance"]["all"]["mean"] for run in report["runs"]]
    assert (spread["lowest"], spread["highest"]) == (min(means), max(means))


def test_number_of_prompts_side_by_side_changes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ways(batch: int) -> Any:
        run = report_of(
            capsys,
            *(folder / "out-0", "--prompts", folder / "prompts.jsonl", "--batch", str(batch)),
            *("--timed-prompts", "0", "--tree-budget", "9"),
        )["runs"][0]
        return {name: way["acceptance"] for name, way in run["ways"].items()}

    assert ways(1) == ways(3)


def test_text_is_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = evaluate(
        capsys,
        *(folder / "out-0", "--max-new-tokens", "6", "--num-prompts", "2", "--tree-budget", "4"),
    )
    assert code == 0, err
    for words in ("block size 4", "chain", "tree-4", "2 of 2 equal", "held-out.jsonl: 2, "):
        assert words in out
    assert "\x1b" not in out + err
    assert "nan" not in out


def test_sampled_answers_are_not_called_lossless(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(
        capsys,
        *(folder / "out-0", "--prompts", folder / "prompts.jsonl", "--temperature", "1.0"),
        *("--timed-prompts", "0"),
    )
    assert report["runs"][0]["ways"]["chain"]["lossless"] is None
    one_prompt = ("--num-prompts", "1", "--temperature", "1.0", "--timed-prompts", "0")
    code, out, err = evaluate(capsys, folder / "out-0", "--max-new-tokens", "4", *one_prompt)
    assert code == 0, err
    assert "sampled" in out
    assert "nan" not in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["nowhere"], "no checkpoint; looked for model.safetensors", id="no-folder"),
        pytest.param(["out-0", "--best"], "no best checkpoint is known", id="no-best"),
        pytest.param(["bare"], "no run tells which target", id="bare"),
        pytest.param(["bare", "--target", "model"], "wanted --prompts", id="bare-prompts"),
        pytest.param(
            ["out-0", "--prompts", "gone"], "gone: cannot read the data file", id="no-prompts"
        ),
        pytest.param(["out-0", "--prompts", "odd"], "odd: row 2: no user turn", id="no-user"),
        pytest.param(["out-0", "--json", "no/x"], "no such folder", id="json-folder"),
        pytest.param(
            ["out-0", "--target", "other"],
            "hidden_size is 16, and the drafter was trained for 32",
            id="other-target",
        ),
        pytest.param(["torn"], "torn/checkpoint holds no checkpoint: ", id="torn-weights"),
    ],
)
def test_what_cannot_be_used_is_named(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(folder)
    if not (folder / "bare").exists():
        shutil.copytree(folder / "out-0" / "checkpoint", folder / "bare")
        shutil.copytree(folder / "out-0", folder / "torn")
        weights = folder / "torn" / "checkpoint" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        torch.manual_seed(0)
        make_model(hidden_size=16, num_attention_heads=2).save_pretrained(folder / "other")
        make_tokenizer().save_pretrained(folder / "other")
        write_jsonl(
            folder / "odd",
            [{"messages": [{"role": role, "content": "x"}]} for role in ("user", "system")],
        )
    code, out, err = evaluate(capsys, *arguments)
    assert (code, out) == (2, "")
    assert problem in err
    assert "Traceback" not in err


def test_bare_checkpoint_takes_target_and_prompts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = folder / "elsewhere" / "deep" / "drafter"
    shutil.copytree(folder / "out-0" / "checkpoint", bare)
    report = report_of(
        capsys,
        *(bare, "--target", folder / "model", "--prompts", folder / "prompts.jsonl"),
        *("--eos-token-id", "2", "--timed-prompts", "0"),
    )
    assert report["runs"][0]["name"] is None
    assert report["runs"][0]["ways"]["chain"]["lossless"]["num_equal"] == 3


def test_what_was_measured_before_an_interrupt_is_kept(folder: Path) -> None:
    figures = folder / "stopped.json"
    arguments = [
        *("out-0", "out-1", "--prompts", "prompts.jsonl", "--json", figures.name),
        *("--device", "cpu", "--max-new-tokens", "40", "--tree-budget", "9", "--timed-prompts=2"),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "train", "evaluate", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as evaluating:
        assert evaluating.stdout
        told = ""
        while "out-0: block size 4" not in told:
            line = evaluating.stdout.readline()
            assert line, told
            told += line
        evaluating.send_signal(signal.SIGTERM)
        told += evaluating.stdout.read()
    assert evaluating.returncode == 130
    assert "incomplete: 1 of 2 runs were measured to their end" in told
    assert "prompts.jsonl: 3, " in told
    report = json.loads(figures.read_text())
    assert (report["state"], report["num_runs"]) == ("incomplete", 2)
    assert report["runs"][0]["state"] == "finished"
    assert list(report["runs"][0]["ways"]) == ["chain", "tree-9"]
    assert [run["state"] for run in report["runs"][1:]] in ([], ["incomplete"])


def test_begun_run_is_told_at_the_end(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Whatever ends it: here a bug, after the chain of the second run of two."""
    whole = report_of(
        capsys,
        *(folder / "out-0", folder / "out-1", "--prompts", folder / "prompts.jsonl"),
        *("--timed-prompts", "1", "--tree-budget", "3"),
    )
    first, second = whole["runs"]
    begun = {**second, "state": "incomplete", "ways": {"chain": second["ways"]["chain"]}}
    known = {**whole, "state": "incomplete", "runs": [first, begun]}
    for as_json in (False, True):
        file = tmp_path / f"{as_json}.json"
        with suppress(ZeroDivisionError), EvaluationOutput(file=file, as_json=as_json) as out:
            out.take({**whole, "runs": []})
            out.take({**whole, "state": "incomplete", "runs": [first]})
            out.take(known)
            raise ZeroDivisionError
        text = capsys.readouterr().out
        assert json.loads(file.read_text()) == known
        if as_json:
            assert json.loads(text) == known
        else:
            assert [text.count(f"out-{seed}: block size") for seed in (0, 1)] == [1, 1]
            assert text.count("tree-3") == 1
            assert "incomplete: 1 of 2 runs" in text
