"""How much each slot of a block counts in the loss.

Shape suffixes: M blocks, K slots per block (slot 0 is the anchor and never counts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from torch import Tensor


class SlotWeights(Protocol):
    """Weighs the slots of blocks; weights are constants to the gradient."""

    def __call__(self, entropy_MK: Tensor, *, has_label_MK: Tensor) -> Tensor:
        """Return weights [M, K], float32, 0 where there is no label.

        Args:
            entropy_MK: Cross-entropy of each slot's label in nats, float32; anything without one.
            has_label_MK: True where a slot carries loss.
        """
        ...


@dataclass(frozen=True)
class DecayedWeights:
    """Weights that fall with the slot: exp(-(k - 1) / gamma) for slots k >= 1.

    Attributes:
        gamma: Slots after which the weight has fallen to 1/e.

    Source: DFlash, arXiv 2602.06036 v2.
    """

    gamma: float

    def __call__(self, entropy_MK: Tensor, *, has_label_MK: Tensor) -> Tensor:
        """See `SlotWeights`."""
        slot_K = torch.arange(has_label_MK.shape[1], device=entropy_MK.device)
        return torch.exp(-(slot_K - 1) / self.gamma) * has_label_MK


@dataclass(frozen=True)
class PathWeights:
    """D-PACE: weights that follow from how likely the drafter reaches each slot, and goes on.

    With q the probability of a slot's label, smoothed to (1 - alpha) q + alpha, the product of
    the first k of them says how likely slot k is reached and right. Slot j counts by the sum of
    these products over the slots from j on: all that a mistake there would cost. Slots without a
    label neither stop a path nor add to the sum.

    Attributes:
        alpha: Smoothing in (0, 1]. Without any, an untrained drafter would learn its first slot
            only; with 1, slots count by how many follow.

    Source: D-PACE, arXiv 2605.18810.
    """

    alpha: float = 0.5

    def __call__(self, entropy_MK: Tensor, *, has_label_MK: Tensor) -> Tensor:
        """See `SlotWeights`."""
        smooth_MK = torch.lerp((-entropy_MK).exp(), torch.ones_like(entropy_MK), self.alpha)
        reached_MK = smooth_MK.masked_fill(~has_label_MK, 1.0).cumprod(dim=1) * has_label_MK
        return reached_MK.flip(1).cumsum(dim=1).flip(1) * has_label_MK
