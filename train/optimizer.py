"""AdamW over the drafter's float32 parameters.

The parameters themselves are the float32 masters: with a bfloat16 target, `Drafter.forward`
computes under autocast. Keeping bfloat16 parameters and separate float32 copies would cost the same
16 bytes per parameter (2 + 2 + 4 + 8 against 4 + 4 + 8) and add a copy step; pure bfloat16 Adam
loses small updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import nn


def build_optimizer(
    drafter: nn.Module,
    *,
    peak_lr: float,
    betas: tuple[float, float] = (0.9, 0.95),
    weight_decay: float = 0.0,
) -> torch.optim.AdamW:
    """Make the optimizer of all trainable parameters.

    Args:
        drafter: Module whose parameters are float32.
        peak_lr: Learning rate that the schedule scales.
        betas: Decay of the first and second moments.
        weight_decay: Decoupled decay of matrices; norms are never decayed.

    Raises:
        TypeError: A parameter is not float32.
    """
    trainable = {name: p for name, p in drafter.named_parameters() if p.requires_grad}
    for name, parameter in trainable.items():
        if parameter.dtype != torch.float32:
            raise TypeError(f"{name} is {parameter.dtype}; parameters in training are float32")
    matrices = [p for p in trainable.values() if p.dim() > 1]
    norms = [p for p in trainable.values() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": norms, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=peak_lr, betas=betas, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Use a learning rate for the next step, in every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
