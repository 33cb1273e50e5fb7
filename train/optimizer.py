"""Optimizers of the drafter's float32 parameters: AdamW, or Muon for its matrices.

The parameters themselves are the float32 masters: with a bfloat16 target, `Drafter.forward`
computes under autocast. Keeping bfloat16 parameters and separate float32 copies would cost the same
16 bytes per parameter (2 + 2 + 4 + 8 against 4 + 4 + 8) and add a copy step; pure bfloat16 Adam
loses small updates.

All matrices of a drafter are hidden ones, which is what Muon is for: embedding and head are the
target's. Its update of an A x B matrix is scaled by 0.2 sqrt(max(A, B)), which makes it as large as
AdamW's, so that both take the same learning rate and weight decay.

Source: Muon is scalable for LLM training, arXiv 2502.16982, for the scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn


class OptimizerPair:
    """Two optimizers that step as one, each with its own parameters.

    Args:
        matrices: Steps the matrices.
        norms: Steps everything else.
    """

    def __init__(self, matrices: torch.optim.Optimizer, norms: torch.optim.Optimizer) -> None:
        self._parts = {"matrices": matrices, "norms": norms}

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Parameter groups of both; changes to them count."""
        return [group for part in self._parts.values() for group in part.param_groups]

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters."""
        for part in self._parts.values():
            part.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        """Step all parameters that have a gradient."""
        for part in self._parts.values():
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of both, of tensors and plain values only."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        for name, part in self._parts.items():
            part.load_state_dict(state[name])


Optimizer = torch.optim.Optimizer | OptimizerPair
"""What steps a drafter; both kinds have the same methods."""


def build_optimizer(
    drafter: nn.Module,
    *,
    peak_lr: float,
    kind: Literal["adamw", "muon"] = "adamw",
    betas: tuple[float, float] = (0.9, 0.95),
    weight_decay: float = 0.0,
) -> Optimizer:
    """Make the optimizer of all trainable parameters.

    Args:
        drafter: Module whose parameters are float32.
        peak_lr: Learning rate that the schedule scales.
        kind: Optimizer of the matrices; the norms always have AdamW.
        betas: Decay of AdamW's first and second moments.
        weight_decay: Decoupled decay of matrices; norms are never decayed.

    Raises:
        TypeError: A parameter is not float32.
        ConfigError: The installed torch has no Muon.
    """
    trainable = {name: p for name, p in drafter.named_parameters() if p.requires_grad}
    for name, parameter in trainable.items():
        if parameter.dtype != torch.float32:
            raise TypeError(f"{name} is {parameter.dtype}; parameters in training are float32")
    matrices = [p for p in trainable.values() if p.dim() > 1]
    norms: dict[str, Any] = {
        "params": [p for p in trainable.values() if p.dim() <= 1],
        "weight_decay": 0.0,
    }
    if kind == "muon":
        return OptimizerPair(
            _muon(matrices, peak_lr=peak_lr, weight_decay=weight_decay),
            torch.optim.AdamW([norms], lr=peak_lr, betas=betas, fused=True),
        )
    groups = [{"params": matrices, "weight_decay": weight_decay}, norms]
    return torch.optim.AdamW(groups, lr=peak_lr, betas=betas, fused=True)


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Use a learning rate for the next step, in every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def _muon(
    matrices: Sequence[nn.Parameter], *, peak_lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    make: Any = getattr(torch.optim, "Muon", None)
    if make is None:
        raise ConfigError(
            [f"train.optimizer: muon needs torch 2.9 or newer, found {torch.__version__}"]
        )
    optimizer: torch.optim.Optimizer = make(
        matrices, lr=peak_lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    return optimizer
