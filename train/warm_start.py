"""Start the drafter's layers as copies of the target's last layers.

The drafter's tensors are shaped like those of the target's layers, so each can be copied. A drafter
that trains for minutes starts ahead with what the target knows of its own vocabulary; one that
trains for days need not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from train.settings import ConfigError

if TYPE_CHECKING:
    from train.drafter import Drafter
    from train.target import Target


@torch.no_grad()
def copy_target_layers(drafter: Drafter, target: Target) -> None:
    """Copy the target's last layers and its final norm into the drafter, tensor by tensor.

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
