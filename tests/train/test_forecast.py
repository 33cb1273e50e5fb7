from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from transformers import LlamaConfig, Qwen3MoeConfig

from tests.train.tiny_run import make_tokenizer, write_run
from train.__main__ import main
from train.run_folder import RunFolder
from train.target_section import TargetConfig
from train.target_shape import read_target_shape

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
    assert "at the given 10 context tokens" in lines["time"]
    assert "--tokens-per-second" in plan(capsys, write_run(tmp_path))[1]


def test_work_is_that_of_the_steps_and_of_states_that_are_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_file = write_run(tmp_path, epochs=6)
    whole = figures(capsys, run_file, cache_features_bytes=0)
    assert whole["epochs"] == 6
    assert whole["flops"]["drafter"] == 6 * whole["flops_per_epoch"]
    assert whole["flops"]["target"] == 6 * whole["target_flops_per_epoch"]
    state_bytes = whole["context_tokens_per_epoch"] * 2 * 32 * 4  # 2 layers of 32 float32 numbers
    for cache_bytes, passes in (
        (state_bytes, 1.0),
        (10 * state_bytes, 1.0),
        (state_bytes // 2, 3.5),
    ):
        found = figures(capsys, run_file, cache_features_bytes=cache_bytes)
        assert found["flops"]["target"] == pytest.approx(passes * whole["target_flops_per_epoch"])
        kept = found["memory_bytes"]["kept states of the target"]
        assert kept == min(cache_bytes, state_bytes)
    half = figures(capsys, run_file, cache_features_bytes=0, max_steps=whole["num_steps"] // 2)
    assert half["flops"]["drafter"] == pytest.approx(whole["flops"]["drafter"] / 2)
    assert half["flops"]["target"] == pytest.approx(whole["flops"]["target"] / 2)


def figures(capsys: pytest.CaptureFixture[str], run_file: Path, **settings: int) -> dict[str, Any]:
    arguments = [f"--set=train.{name}={value}" for name, value in settings.items()]
    code, out, err = plan(capsys, run_file, "--format", "json", *arguments)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


SHAPE: dict[str, Any] = {
    "vocab_size": 260,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
ATTENTION = 32 * 8 * (4 + 2 + 2 + 4)


@pytest.mark.parametrize(
    ("config", "per_token"),
    [
        pytest.param(
            LlamaConfig(**SHAPE, intermediate_size=48),
            4 * (ATTENTION + 3 * 32 * 48 + 2 * 32) + 32,
            id="embedding-and-head-apart",
        ),
        pytest.param(
            LlamaConfig(**SHAPE, intermediate_size=48, tie_word_embeddings=True),
            4 * (ATTENTION + 3 * 32 * 48 + 2 * 32) + 32,
            id="embedding-and-head-shared",
        ),
        pytest.param(
            Qwen3MoeConfig(**SHAPE, moe_intermediate_size=16, num_experts=8, num_experts_per_tok=2),
            4 * (ATTENTION + 2 * 3 * 32 * 16 + 8 * 32 + 2 * 32 + 2 * 8) + 32,
            id="two-experts-of-eight",
        ),
    ],
)
def test_work_of_a_target_is_what_a_token_meets(
    tmp_path: Path, config: Any, per_token: int
) -> None:
    """A mixture of experts does a part of the work that its size suggests; the ends do none."""
    config.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert read_target_shape(TargetConfig(path=str(tmp_path))).num_active == per_token


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
