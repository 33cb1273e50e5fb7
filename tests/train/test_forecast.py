from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.train.tiny_run import write_run
from train.__main__ import main
from train.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path


def plan(
    capsys: pytest.CaptureFixture[str], run_file: Path, *arguments: str
) -> tuple[int, str, str]:
    code = main(["plan", "--config", str(run_file), *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("settings", "widths"),
    [
        pytest.param([], {32, 64}, id="a-conversation-a-row"),
        pytest.param(
            ["--set", "data.packing=true", "--set", "data.buckets=[128]"], {128}, id="packed"
        ),
    ],
)
def test_forecast_says_what_the_run_then_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: list[str], widths: set[int]
) -> None:
    run_file = write_run(tmp_path)
    code, out, _ = plan(capsys, run_file, "--format", "json", *settings)
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    assert main(["--config", str(run_file), "--out", str(tmp_path / "out"), *settings]) == 0
    folder = RunFolder(tmp_path / "out")
    summary = json.loads(folder.summary.read_text())
    assert found["config"] == summary["config"]
    for mine, theirs in (
        ("num_steps", summary["training"]["num_steps"]),
        ("num_samples", summary["data"]["num_train"]),
        ("num_draft_parameters", summary["num_draft_parameters"]),
        ("target_layer_ids", summary["target_layer_ids"]),
    ):
        assert found[mine] == theirs, mine
    assert 2 * found["context_tokens_per_epoch"] == summary["training"]["num_tokens"]
    # 8 anchors of 4 slots, 4 heads, 2 rows, 4 bytes.
    assert found["dense_attention_bytes_per_layer"] in {
        2 * 4 * 32 * (width + 32) * 4 for width in widths
    }


def test_mask_token_that_is_still_to_be_chosen_changes_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_file = write_run(tmp_path)
    given = json.loads(plan(capsys, run_file, "--format", "json")[1])
    lines = run_file.read_text().splitlines(keepends=True)
    run_file.write_text("".join(line for line in lines if "mask_token_id" not in line))
    chosen = json.loads(plan(capsys, run_file, "--format", "json")[1])
    assert "auto" in chosen["config"]["draft"].values()
    del given["config"], chosen["config"]
    assert chosen == given


def test_text_names_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = plan(capsys, write_run(tmp_path), "--tokens-per-second", "10")
    assert code == 0
    lines = dict(line.split(maxsplit=1) for line in out.partition("\n}\n")[2].splitlines())
    for name in ("data", "steps", "target", "drafter", "work", "memory", "attention", "time"):
        assert lines[name]
    assert "minutes at the given 10 context tokens" in lines["time"]
    assert "--tokens-per-second" in plan(capsys, write_run(tmp_path))[1]


def test_plan_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_file = write_run(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, _ = plan(capsys, run_file)
    assert code == 0
    assert main(["--config", str(run_file), "--plan"]) == 0
    assert capsys.readouterr().out == out
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (('path = "model"', 'path = "./none"'), "target.path: nothing at"),
        (("num_layers = 2", "num_layers = 9"), "draft.num_layers: "),
        (("max_length = 64", "max_length = 8"), "data.train: found 0 usable rows"),
    ],
)
def test_what_cannot_be_planned_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str],
    problem: str,
) -> None:
    run_file = write_run(tmp_path)
    run_file.write_text(run_file.read_text().replace(*change))
    code, out, err = plan(capsys, run_file)
    assert (code, out) == (2, "")
    assert problem in err
    assert "Traceback" not in err
