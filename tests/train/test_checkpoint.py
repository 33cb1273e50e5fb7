from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.train.saved import save_checkpoint
from train.checkpoint import (
    CheckpointError,
    check_tensors,
    drafter_config_from,
    load_checkpoint,
    serving_config,
)
from train.drafter import Drafter
from train.drafter_config import DrafterConfig
from train.durable import replacing

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = DrafterConfig(
    hidden_size=16,
    num_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=24,
    vocab_size=40,
    block_size=4,
    mask_token_id=39,
    target_layer_ids=(1, 3, 4),
    num_target_layers=6,
    rope_theta=1e5,
)
LAYER_TENSORS = (
    "input_layernorm.weight",
    "mlp.down_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "post_attention_layernorm.weight",
    "self_attn.k_norm.weight",
    "self_attn.k_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_norm.weight",
    "self_attn.q_proj.weight",
    "self_attn.v_proj.weight",
)


@pytest.fixture(name="drafter")
def _drafter() -> Drafter:
    torch.manual_seed(0)
    return Drafter(CONFIG)


def save(drafter: Drafter, folder: Path) -> None:
    save_checkpoint(drafter, folder, eos_token_id=2)


def test_files_have_the_names_of_the_format(drafter: Drafter, tmp_path: Path) -> None:
    save(drafter, tmp_path / "checkpoint")
    tensors = load_file(tmp_path / "checkpoint" / "model.safetensors")
    layers = [f"layers.{i}.{name}" for i in range(2) for name in LAYER_TENSORS]
    assert sorted(tensors) == sorted([*layers, "fc.weight", "hidden_norm.weight", "norm.weight"])
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_config_holds_what_serving_engines_read(drafter: Drafter, tmp_path: Path) -> None:
    save(drafter, tmp_path / "checkpoint")
    config = json.loads((tmp_path / "checkpoint" / "config.json").read_text())
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["model_type"] == "qwen3"
    assert config["block_size"] == config["dflash_config"]["block_size"] == 4
    assert config["dflash_config"]["mask_token_id"] == 39
    assert config["dflash_config"]["target_layer_ids"] == [1, 3, 4]
    assert config["num_target_layers"] == 6
    assert config["layer_types"] == ["full_attention"] * 2
    assert config["tie_word_embeddings"] is False
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)


def test_reload_gives_the_rounded_drafter(drafter: Drafter, tmp_path: Path) -> None:
    save(drafter, tmp_path / "checkpoint")
    reloaded = load_checkpoint(tmp_path / "checkpoint")
    assert reloaded.config == drafter.config
    rounded = {name: tensor.bfloat16().float() for name, tensor in drafter.state_dict().items()}
    assert all(torch.equal(rounded[name], found) for name, found in reloaded.state_dict().items())
    drafter.load_state_dict(rounded)
    inputs = {
        "target_hidden_BCF": torch.randn(1, 5, 48),
        "positions_BT": torch.arange(9)[None],
    }
    noise = torch.randn(1, 4, 16)
    assert torch.equal(drafter(noise, **inputs), reloaded(noise, **inputs))


def test_saving_again_replaces(drafter: Drafter, tmp_path: Path) -> None:
    save(drafter, tmp_path / "checkpoint")
    with torch.no_grad():
        drafter.norm.weight.fill_(3.0)
    save(drafter, tmp_path / "checkpoint")
    assert load_checkpoint(tmp_path / "checkpoint").norm.weight.eq(3.0).all()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_drafter_with_nan_is_not_written(drafter: Drafter, tmp_path: Path) -> None:
    save(drafter, tmp_path / "checkpoint")
    with torch.no_grad():
        drafter.fc.weight[0, 0] = float("nan")
    with pytest.raises(CheckpointError, match=r"fc\.weight is not finite"):
        save(drafter, tmp_path / "checkpoint")
    load_checkpoint(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("name", "tensor", "problem"),
    [
        pytest.param("norm.weight", None, "norm.weight is missing", id="missing"),
        pytest.param("lm_head.weight", torch.ones(2), "is not in the format", id="unknown"),
        pytest.param("norm.weight", torch.ones(7), r"shape \(7,\), wanted \(16,\)", id="misshapen"),
        pytest.param("norm.weight", torch.full((16,), torch.inf), "is not finite", id="infinite"),
    ],
)
def test_wrong_tensors_are_named(
    drafter: Drafter, name: str, tensor: torch.Tensor | None, problem: str
) -> None:
    tensors = dict(drafter.state_dict())
    tensors.pop(name, None)
    if tensor is not None:
        tensors[name] = tensor
    with pytest.raises(CheckpointError, match=problem):
        check_tensors(tensors, CONFIG)


def test_config_that_does_not_fit_the_weights_is_refused(drafter: Drafter, tmp_path: Path) -> None:
    save(drafter, tmp_path / "checkpoint")
    config_path = tmp_path / "checkpoint" / "config.json"
    config = json.loads(config_path.read_text())
    config_path.write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(CheckpointError, match=r"layers\.2\..* is missing"):
        load_checkpoint(tmp_path / "checkpoint")


def test_missing_and_broken_files_are_refused(drafter: Drafter, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        load_checkpoint(tmp_path / "nothing")
    save(drafter, tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "model.safetensors").write_bytes(b"\0" * 16)
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        load_checkpoint(tmp_path / "checkpoint")


def test_layer_id_and_mask_id_must_exist() -> None:
    config = serving_config(CONFIG, bos_token_id=1, eos_token_id=2)
    for change in ({"mask_token_id": 40}, {"target_layer_ids": [1, 6]}):
        broken = {**config, "dflash_config": {**config["dflash_config"], **change}}
        with pytest.raises(ValueError, match="must be"):
            drafter_config_from(broken)


def test_leftovers_of_a_killed_save_do_not_matter(drafter: Drafter, tmp_path: Path) -> None:
    for leftover in (".checkpoint.partial", ".checkpoint.former"):
        (tmp_path / leftover).mkdir()
        save_file({"x": torch.ones(1)}, tmp_path / leftover / "model.safetensors")
    save(drafter, tmp_path / "checkpoint")
    load_checkpoint(tmp_path / "checkpoint")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_new_folder_moves_the_former_aside(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with replacing(tmp_path / "old") as folder:
            (folder / "file").write_text(name)
    assert (tmp_path / "old" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
