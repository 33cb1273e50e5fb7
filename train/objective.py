"""One micro-batch of training: from tokens and target states to the loss.

Shape suffixes: B sequences, S context tokens (padded on the right), D hidden size, F = tapped
layers * D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.anchors import block_inputs, sample_anchors
from train.loss import decayed_cross_entropy

if TYPE_CHECKING:
    from torch import Tensor

    from train.attention import MaskedAttention
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


@dataclass(frozen=True)
class Objective:
    """How blocks are drawn and weighed.

    Attributes:
        num_anchors: Blocks per row.
        gamma: Decay of the slots' weights, in slots; see `train.loss`.
        attention: Makes the masked attention; see `train.attention.attention_for`.
        chunk_blocks: Blocks whose logits exist at the same time.
    """

    num_anchors: int
    gamma: float
    attention: MaskedAttention
    chunk_blocks: int = 128


def draft_loss(
    drafter: Drafter, *, target: FrozenTarget, rows: Rows, objective: Objective
) -> LossSums:
    """Draft random blocks of the rows and compare them with what follows.

    Losses of the micro-batches of one optimizer step are divided by the sum of all their
    denominators: backpropagate each numerator, then scale the gradients once, before clipping.

    Args:
        drafter: The drafter.
        target: Its embedding and head are used; no gradient reaches its parameters.
        rows: The micro-batch.
        objective: How blocks are drawn and weighed.

    Returns:
        Sums whose numerator has a gradient to every parameter, zero if no row has an anchor.
    """
    config = drafter.config
    anchors = sample_anchors(
        rows.loss_mask_BS,
        keys_BS=rows.keys_BS,
        num_anchors=objective.num_anchors,
        document_start_BS=rows.document_start_BS,
    )
    inputs = block_inputs(
        rows.ids_BS,
        loss_mask_BS=rows.loss_mask_BS,
        anchors=anchors,
        block_size=config.block_size,
        mask_token_id=config.mask_token_id,
        document_start_BS=rows.document_start_BS,
    )
    hidden_BQD = drafter(
        target.embed(inputs.block_ids_BNK.flatten(1)),
        target_hidden_BCF=rows.target_hidden_BSF,
        positions_BT=inputs.positions_BT,
        attend=objective.attention(
            anchors,
            num_context=rows.ids_BS.shape[1],
            block_size=config.block_size,
            num_heads=config.num_attention_heads,
        ),
    )
    return decayed_cross_entropy(
        hidden_BQD,
        head=target.logits,
        inputs=inputs,
        gamma=objective.gamma,
        chunk_blocks=objective.chunk_blocks,
    )
