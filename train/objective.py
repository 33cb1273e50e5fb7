"""One micro-batch of training: from tokens and target states to the loss.

Shape suffixes: B sequences, S context tokens (padded on the right), D hidden size, F = tapped
layers * D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from train.drafter import Drafter
    from train.frozen_target import FrozenTarget
    from train.loss import LossSums


@dataclass(frozen=True)
class Rows:
    """Token rows with the target's states, all on the drafter's device.

    Attributes:
        ids_BS: Token ids, padded on the right.
        loss_mask_BS: True on supervised tokens, False on padding.
        keys_BS: Rows of `train.anchors.anchor_keys`, one per sample.
        target_hidden_BSF: The target's tapped states of these tokens.
        document_start_BS: See `train.anchors`; None when every row holds one document.
    """

    ids_BS: Tensor
    loss_mask_BS: Tensor
    keys_BS: Tensor
    target_hidden_BSF: Tensor
    document_start_BS: Tensor | None = None


def draft_loss(
    drafter: Drafter,
    *,
    target: FrozenTarget,
    rows: Rows,
    num_anchors: int,
    gamma: float,
    chunk_blocks: int = 128,
) -> LossSums:
    """Draft random blocks of the rows and compare them with what follows.

    Args:
        drafter: The drafter.
        target: Its embedding and head are used; no gradient reaches its parameters.
        rows: The micro-batch.
        num_anchors: Blocks per row.
        gamma: See `train.loss.decayed_cross_entropy`.
        chunk_blocks: Same.

    Returns:
        Sums whose numerator has a gradient to every parameter, zero if no row has an anchor.
    """
    raise NotImplementedError
