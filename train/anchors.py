"""Random blocks of a sequence: where they start, what they are given, what they must predict.

Shape suffixes: B sequences, S context tokens (padded), N blocks per sequence, K slots per block
(slot 0 is the anchor), Q = N * K, T = S + Q.

Rows may hold several documents; `document_start_BS` is, for every token, the index of its
document's first token (zeros for a row that holds one). Positions, context and labels all stay
inside a document.

Nothing here reads a tensor's value on the host, so a GPU is never waited for.

Source: DFlash, arXiv 2602.06036 v2, for random blocks of the answer, new in every epoch; SpecForge
for which tokens may be anchors.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Anchors:
    """Where the blocks of every row start; the mask follows from this alone.

    Attributes:
        anchor_BN: Index of each block's anchor token, ascending; 0 for dropped blocks, which stand
            last. Block n sees the context tokens in `[context_start_BN, anchor_BN)`.
        context_start_BN: Index of the first token of the anchor's document.
        keep_BN: False for blocks that only fill the constant width.
    """

    anchor_BN: Tensor
    context_start_BN: Tensor
    keep_BN: Tensor


@dataclass(frozen=True)
class BlockInputs:
    """What the drafter is given and what it must answer.

    Attributes:
        block_ids_BNK: The anchor token, then mask tokens; dropped blocks are all mask tokens.
        positions_BT: Positions of all context tokens, then of all slots.
        labels_BNK: The token at each slot's own position; 0 where there is none.
        has_label_BNK: True where a slot carries loss: never slot 0, never in a dropped block.
    """

    block_ids_BNK: Tensor
    positions_BT: Tensor
    labels_BNK: Tensor
    has_label_BNK: Tensor


def anchor_keys(num_tokens: int, *, seed: int, epoch: int, sample_index: int) -> Tensor:
    """Draw the random keys whose order picks a sample's anchors.

    They depend on the arguments alone: not on the rank, the device, the batch or the padding, so a
    resumed or differently spread run trains on the same blocks.

    Args:
        num_tokens: Length of the (padded) row; a shorter row gets a prefix of the same keys.
        seed: The run's seed.
        epoch: Pass over the data, from 0; every pass gets new anchors.
        sample_index: The sample's index in the whole data set.

    Returns:
        Keys [S] in [0, 1), float64 on the CPU: in float32 a few thousand keys already collide.
    """
    packed = struct.pack("<qqq", seed, epoch, sample_index)
    # torch's CPU generator keeps 32 bits of its seed; hashing spreads all three numbers over them.
    digest = hashlib.blake2b(packed, digest_size=4).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
    return torch.rand(num_tokens, generator=generator, dtype=torch.float64)


def valid_anchors(loss_mask_BS: Tensor, *, document_start_BS: Tensor | None = None) -> Tensor:
    """Mark the tokens a block may start at.

    An anchor is a token the target has just produced, with at least one more to predict: it and its
    successor are supervised and of one document. Blocks may overrun the end, where labels stop.

    Args:
        loss_mask_BS: True on supervised tokens (the assistant's).
        document_start_BS: See the module; None when every row holds one document.

    Returns:
        Bool [B, S].
    """
    supervised_BS = loss_mask_BS.bool()
    is_pair_BS = torch.zeros_like(supervised_BS)
    is_pair_BS[:, :-1] = supervised_BS[:, :-1] & supervised_BS[:, 1:]
    if document_start_BS is not None:
        is_pair_BS[:, :-1] &= document_start_BS[:, :-1] == document_start_BS[:, 1:]
    return is_pair_BS


def sample_anchors(
    loss_mask_BS: Tensor,
    *,
    keys_BS: Tensor,
    num_anchors: int,
    document_start_BS: Tensor | None = None,
) -> Anchors:
    """Pick anchors uniformly without replacement, in a width that never varies.

    Args:
        loss_mask_BS: True on supervised tokens.
        keys_BS: Rows of `anchor_keys`, on the mask's device.
        num_anchors: N; rows with fewer valid anchors get dropped blocks, so that shapes, and with
            them compiled kernels, stay the same.
        document_start_BS: See the module; None when every row holds one document.
    """
    num_tokens = loss_mask_BS.shape[1]
    valid_BS = valid_anchors(loss_mask_BS, document_start_BS=document_start_BS)
    order_BS = keys_BS.masked_fill(~valid_BS, torch.inf).argsort(dim=1, stable=True)
    order_BN = functional.pad(order_BS, (0, max(0, num_anchors - num_tokens)))[:, :num_anchors]
    rank_N = torch.arange(num_anchors, device=order_BN.device)
    keep_BN = rank_N < valid_BS.sum(dim=1, keepdim=True)
    # Sorted, a tile of neighbouring blocks shares most of its context; num_tokens sorts last.
    anchor_BN = order_BN.masked_fill(~keep_BN, num_tokens).sort(dim=1).values
    anchor_BN = anchor_BN.masked_fill(~keep_BN, 0)
    if document_start_BS is None:
        context_start_BN = torch.zeros_like(anchor_BN)
    else:
        context_start_BN = document_start_BS.gather(1, anchor_BN).masked_fill(~keep_BN, 0)
    return Anchors(anchor_BN=anchor_BN, context_start_BN=context_start_BN, keep_BN=keep_BN)


def block_inputs(
    ids_BS: Tensor,
    *,
    loss_mask_BS: Tensor,
    anchors: Anchors,
    block_size: int,
    mask_token_id: int,
    document_start_BS: Tensor | None = None,
) -> BlockInputs:
    """Build the drafter's inputs and labels.

    Labels are not shifted: slot k stands at position anchor + k and predicts the token there.

    Args:
        ids_BS: Token ids.
        loss_mask_BS: True on supervised tokens.
        anchors: From `sample_anchors`.
        block_size: K.
        mask_token_id: Row of the target's embedding that stands for "to be predicted".
        document_start_BS: See the module; None when every row holds one document.
    """
    num_rows, num_tokens = ids_BS.shape
    slot_K = torch.arange(block_size, device=ids_BS.device)
    index_BNK = anchors.anchor_BN[..., None] + slot_K
    inside_BNK = index_BNK < num_tokens
    index_BQ = index_BNK.clamp(max=num_tokens - 1).flatten(1)
    tokens_BNK = ids_BS.gather(1, index_BQ).view_as(index_BNK)
    supervised_BNK = loss_mask_BS.bool().gather(1, index_BQ).view_as(index_BNK)
    keep_BN1 = anchors.keep_BN[..., None]
    start_BN1 = anchors.context_start_BN[..., None]
    has_label_BNK = keep_BN1 & (slot_K > 0) & inside_BNK & supervised_BNK
    token_position_BS = torch.arange(num_tokens, device=ids_BS.device).expand(num_rows, -1)
    if document_start_BS is not None:
        start_BNK = document_start_BS.gather(1, index_BQ).view_as(index_BNK)
        has_label_BNK &= start_BNK == start_BN1
        token_position_BS = token_position_BS - document_start_BS
    is_anchor_BNK = keep_BN1 & (slot_K == 0)
    slot_position_BQ = (index_BNK - start_BN1).flatten(1)
    return BlockInputs(
        block_ids_BNK=tokens_BNK.masked_fill(~is_anchor_BNK, mask_token_id),
        positions_BT=torch.cat((token_position_BS, slot_position_BQ), dim=1),
        labels_BNK=tokens_BNK.masked_fill(~has_label_BNK, 0),
        has_label_BNK=has_label_BNK,
    )
