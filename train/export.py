"""A finished drafter in the layouts that serving engines take.

Shape suffixes: V vocabulary, D hidden size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from train.checkpoint import (
    check_equal,
    check_tensors,
    load_checkpoint,
    save_weights,
    serving_config,
    serving_weights,
    write_checkpoint,
)
from train.checkpoint_files import CONFIG_NAME, WEIGHTS_NAME
from train.durable import replacing
from train.speculators_layout import speculators_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

    from train.drafter import Drafter
    from train.target import Target


@dataclass(frozen=True)
class Source:
    """What is exported.

    Attributes:
        drafter: As it was read from a checkpoint.
        target: Its target.
        target_name: What engines are to load as the target: a hub id or a folder.
    """

    drafter: Drafter
    target: Target
    target_name: str


def export(source: Source, out: Path, *, layout: str) -> None:
    """Write a drafter to a folder that appears complete or not at all, and check it.

    Args:
        source: The drafter.
        out: New folder.
        layout: A key of `LAYOUTS`.

    Raises:
        CheckpointError: The files do not hold what the layout promises.
        OSError: They cannot be written.
    """
    with replacing(out) as folder:
        LAYOUTS[layout](source, folder)


def write_zlab(source: Source, folder: Path) -> None:
    """Write what z-lab's loader, SGLang and vLLM read; embedding and head stay the target's."""
    tokenizer, target = source.target.tokenizer, source.target
    serving = serving_config(
        source.drafter.config, bos_token_id=tokenizer.bos_token_id, eos_token_id=target.eos_id
    )
    weights = serving_weights(source.drafter.state_dict())
    write_checkpoint(folder, weights=weights, serving=serving)
    check_equal(serving_weights(load_checkpoint(folder).state_dict()), weights)


def write_speculators(source: Source, folder: Path) -> None:
    """Write vLLM's speculators layout, which holds the target's embedding and head as well.

    A factor by which the target scales its embeddings is part of the table. One on logits, or a
    cap, is left out: neither changes which token is the most likely.
    """
    drafter, target = source.drafter, source.target
    config = speculators_config(
        drafter.config,
        target_name=source.target_name,
        target_architectures=list(target.model.config.architectures or []),
    )
    weights = {**serving_weights(drafter.state_dict()), **_ends(target)}
    _check(weights, config, drafter)
    save_weights(weights, folder / WEIGHTS_NAME)
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    check_equal(load_file(folder / WEIGHTS_NAME), weights)


LAYOUTS: Mapping[str, Callable[[Source, Path], None]] = {
    "speculators": write_speculators,
    "z-lab": write_zlab,
}
"""Name of each layout and what writes it."""


@torch.no_grad()
def _ends(target: Target) -> dict[str, Tensor]:
    """Return the target's embedding and head, apart even where the target shares them."""
    head_VD: Any = target.model.get_output_embeddings().weight
    ids_V = torch.arange(head_VD.shape[0], device=target.device)
    ends = {"embed_tokens.weight": target.embed(ids_V), "lm_head.weight": head_VD.clone()}
    return serving_weights(ends)


def _check(weights: Mapping[str, Tensor], config: Mapping[str, Any], drafter: Drafter) -> None:
    """Check the drafter's own tensors as in its own format, and the ends against the config."""
    own = {name: weights[name] for name in drafter.state_dict()}
    check_tensors(own, drafter.config)
    shape = (config["draft_vocab_size"], drafter.config.hidden_size)
    for name in weights.keys() - own.keys():
        if tuple(weights[name].shape) != shape:
            raise ValueError(f"{name} has shape {tuple(weights[name].shape)}, wanted {shape}")
