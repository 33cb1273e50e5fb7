"""The drafter in the serving format: `config.json` and `model.safetensors` in bfloat16.

The files are what z-lab's loader, SGLang and vLLM read; tensor names carry no prefix, and neither
the embedding nor the head is among them.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from train.checkpoint_files import CONFIG_NAME, WEIGHTS_NAME
from train.drafter import Drafter
from train.drafter_config import DrafterConfig
from train.sizes import DraftShape, tensor_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor


class CheckpointError(Exception):
    """A checkpoint does not hold what its format promises."""


def serving_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a drafter's weights as the format holds them: bfloat16, on the CPU."""
    return {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in weights.items()
    }


def write_checkpoint(
    folder: Path, *, weights: Mapping[str, Tensor], serving: Mapping[str, Any]
) -> None:
    """Write the two files into a folder that nobody reads yet, and read them back.

    Args:
        folder: Exists.
        weights: In bfloat16, on the CPU.
        serving: Content of `config.json`.

    Raises:
        CheckpointError: The tensors are not those of the format, or are not finite; nothing is
            written then. Or they read back differently.
        OSError: They cannot be written.
    """
    check_tensors(weights, drafter_config_from(serving))
    save_weights(weights, folder / WEIGHTS_NAME)
    (folder / CONFIG_NAME).write_text(json.dumps(serving, indent=2) + "\n", "utf-8")
    check_equal(load_file(folder / WEIGHTS_NAME), weights)


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors to a file.

    Raises:
        OSError: As the file system put it; safetensors has its number in a message alone.
    """
    try:
        save_file(dict(weights), path, metadata={"format": "pt"})
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise OSError(f"{path}: {error}") from error
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def check_tensors(tensors: Mapping[str, Tensor], config: DrafterConfig) -> None:
    """Check names, shapes, number and values of a checkpoint's tensors.

    Raises:
        CheckpointError: Names each tensor that is missing, unknown or misshapen, and one that is
            not finite, as mostly all are then.
    """
    wanted = tensor_shapes(shape_of(config))
    problems = [f"{name} is missing" for name in wanted.keys() - tensors.keys()]
    problems += [f"{name} is not in the format" for name in tensors.keys() - wanted.keys()]
    broken = []
    for name in sorted(wanted.keys() & tensors.keys()):
        found = tuple(tensors[name].shape)
        if found != wanted[name]:
            problems.append(f"{name} has shape {found}, wanted {wanted[name]}")
        elif not tensors[name].isfinite().all():
            broken.append(name)
    if broken:
        others = f" (nor are {len(broken) - 1} others)" if len(broken) > 1 else ""
        problems.append(f"{broken[0]} is not finite{others}")
    if problems:
        raise CheckpointError("; ".join(sorted(problems)))


def check_equal(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Check that what was read is what was written, bit for bit.

    Raises:
        CheckpointError: A tensor differs.
    """
    differing = [name for name, tensor in wanted.items() if not torch.equal(found[name], tensor)]
    if differing:
        raise CheckpointError(f"read back differently: {', '.join(sorted(differing))}")


def load_checkpoint(folder: Path) -> Drafter:
    """Read a checkpoint into a float32 drafter on the CPU.

    Raises:
        CheckpointError: Files are missing or do not fit each other.
    """
    try:
        config = drafter_config_from(json.loads((folder / CONFIG_NAME).read_text("utf-8")))
        tensors = load_file(folder / WEIGHTS_NAME)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{folder} holds no checkpoint: {error}") from error
    check_tensors(tensors, config)
    drafter = Drafter(config)
    drafter.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return drafter.eval()


def shape_of(config: DrafterConfig) -> DraftShape:
    """Return the numbers that fix a drafter's tensors."""
    return DraftShape(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        num_layers=config.num_layers,
        num_tapped=len(config.target_layer_ids),
    )


def serving_config(
    config: DrafterConfig, *, bos_token_id: int | None, eos_token_id: int
) -> dict[str, Any]:
    """Return `config.json`, for whichever of the serving engines reads it.

    Source:
        z-lab's published checkpoints; newer ones put the block size into `dflash_config`, older
        readers look for it beside that, and for the dtype under its former name.
    """
    return {
        "architectures": ["DFlashDraftModel"],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "model_type": "qwen3",
        "block_size": config.block_size,
        "dflash_config": {
            "block_size": config.block_size,
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": list(config.target_layer_ids),
        },
        "num_target_layers": config.num_target_layers,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "layer_types": ["full_attention"] * config.num_layers,
        "sliding_window": None,
        "use_sliding_window": False,
        "max_window_layers": config.num_layers,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "use_cache": True,
        "initializer_range": config.initializer_range,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "bos_token_id": bos_token_id,
        "eos_token_id": eos_token_id,
    }


def drafter_config_from(serving: Mapping[str, Any]) -> DrafterConfig:
    """Return the drafter's shape from a `config.json`.

    Raises:
        KeyError: A field of the format is missing.
        ValueError: Fields contradict each other.
    """
    dflash = serving["dflash_config"]
    return DrafterConfig(
        hidden_size=serving["hidden_size"],
        num_layers=serving["num_hidden_layers"],
        num_attention_heads=serving["num_attention_heads"],
        num_key_value_heads=serving["num_key_value_heads"],
        head_dim=serving["head_dim"],
        intermediate_size=serving["intermediate_size"],
        vocab_size=serving["vocab_size"],
        block_size=serving["block_size"],
        mask_token_id=dflash["mask_token_id"],
        target_layer_ids=tuple(dflash["target_layer_ids"]),
        num_target_layers=serving["num_target_layers"],
        rms_norm_eps=serving["rms_norm_eps"],
        rope_theta=serving["rope_theta"],
        max_position_embeddings=serving["max_position_embeddings"],
        initializer_range=serving["initializer_range"],
    )
