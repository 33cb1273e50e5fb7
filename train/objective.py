"""One micro-batch of training: from tokens and target states to the loss.

Shape suffixes: B sequences, S context tokens (padded on the right), N blocks per sequence, K slots
per block, Q = N * K, M = B * N, D hidden size, F = tapped layers * D.

Source: DFlash, arXiv 2602.06036 v2; NVIDIA's Model-Optimizer for the state that teaches a slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from train.anchors import Anchors, BlockInputs, block_inputs, sample_anchors
from train.attention import attention_for
from train.loss import Teacher, draft_sums
from train.slot_weights import DecayedWeights, PathWeights

if TYPE_CHECKING:
    from torch import Tensor

    from train.attention import MaskedAttention
    from train.config import TrainConfig
    from train.drafter import Drafter
    from train.frozen_target import FrozenTarget
    from train.loss import LossSums
    from train.slot_weights import SlotWeights


@dataclass(frozen=True)
class Rows:
    """Token rows with the target's states, all on the drafter's device.

    Attributes:
        ids_BS: Token ids, padded on the right.
        loss_mask_BS: True on supervised tokens, False on padding.
        keys_BS: Rows of `train.anchors.anchor_keys`, one per sample.
        target_hidden_BSF: The target's tapped states of these tokens.
        document_start_BS: See `train.anchors`; None when every row holds one document.
        target_final_BSD: The target's states after its final norm; only distillation needs them.
    """

    ids_BS: Tensor
    loss_mask_BS: Tensor
    keys_BS: Tensor
    target_hidden_BSF: Tensor
    document_start_BS: Tensor | None = None
    target_final_BSD: Tensor | None = None


@dataclass(frozen=True)
class Objective:
    """How blocks are drawn and weighed.

    Attributes:
        num_anchors: Blocks per row.
        weights: How much each slot counts.
        attention: Makes the masked attention; see `train.attention.attention_for`.
        temperature: Of the distillation from the target's distribution; None compares with the
            labels instead.
        chunk_blocks: Blocks whose logits exist at the same time.
    """

    num_anchors: int
    weights: SlotWeights
    attention: MaskedAttention
    temperature: float | None = None
    chunk_blocks: int = 128


def objective_of(config: TrainConfig, *, device: torch.device, num_anchors: int) -> Objective:
    """Return what a run trains on, with so many blocks per row."""
    settings = config.train
    follows_path = settings.loss in ("dpace", "dpace-distill")
    return Objective(
        num_anchors=num_anchors,
        weights=(
            PathWeights(settings.dpace_alpha) if follows_path else DecayedWeights(config.gamma)
        ),
        attention=attention_for(device, kind=settings.attention),
        temperature=settings.distill_temperature if config.distills else None,
        chunk_blocks=settings.objective_chunk_blocks,
    )


@dataclass(frozen=True)
class DraftedBlocks:
    """What the drafter made of random blocks of some rows.

    Attributes:
        anchors: Where the blocks start.
        inputs: What the drafter was given, and what it must answer.
        hidden_BQD: Its answer; the target's head turns it into logits.
    """

    anchors: Anchors
    inputs: BlockInputs
    hidden_BQD: Tensor


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

    Raises:
        ValueError: Distillation is asked for, and the rows lack the target's final states.
    """
    drafted = draft_blocks(drafter, target=target, rows=rows, objective=objective)
    return draft_sums(
        drafted.hidden_BQD,
        head=target.logits,
        inputs=drafted.inputs,
        weights=objective.weights,
        teacher=teacher_of(
            rows, drafted.anchors, block_size=drafter.config.block_size, objective=objective
        ),
        chunk_blocks=objective.chunk_blocks,
    )


def draft_blocks(
    drafter: Drafter, *, target: FrozenTarget, rows: Rows, objective: Objective
) -> DraftedBlocks:
    """Draft random blocks of the rows; see `draft_loss`."""
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
    return DraftedBlocks(anchors, inputs, hidden_BQD)


def teacher_of(
    rows: Rows, anchors: Anchors, *, block_size: int, objective: Objective
) -> Teacher | None:
    """Point each slot at the state from which the target predicted the slot's token.

    Returns:
        None where the objective compares with the labels.

    Raises:
        ValueError: The rows lack the target's final states.
    """
    if objective.temperature is None:
        return None
    if rows.target_final_BSD is None:
        raise ValueError("distillation needs the target's final states: see Rows.target_final_BSD")
    num_rows, num_tokens = rows.ids_BS.shape
    device = rows.ids_BS.device
    # The token at anchor + k was predicted one position earlier.
    token_BNK = anchors.anchor_BN[..., None] + torch.arange(-1, block_size - 1, device=device)
    first_B11 = torch.arange(num_rows, device=device)[:, None, None] * num_tokens
    return Teacher(
        final_XD=rows.target_final_BSD.flatten(0, 1),
        index_MK=(first_B11 + token_BNK.clamp(0, num_tokens - 1)).flatten(0, 1),
        temperature=objective.temperature,
    )
