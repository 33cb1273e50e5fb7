"""The rule of which keys a draft token sees in training.

Shape suffixes: B sequences, N blocks, Q = N * block size draft tokens, S context tokens, T = S + Q
keys: the context, then the draft tokens.

A draft token sees the context strictly before its block's anchor, within the anchor's document, and
all of its own block. Strictly: when decoding, the anchor is the token just sampled, and the target
has no states for it yet.

Dropped blocks have no context but see themselves, so that no query is without a key: their outputs
are finite and carry no loss.

Source: DFlash, arXiv 2602.06036 v2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from train.anchors import Anchors


class Sees(Protocol):
    """Whether, in row b and any head, query q sees key j; indices are scalars or broadcast."""

    def __call__(self, b: Tensor, h: Tensor, q: Tensor, j: Tensor, /) -> Tensor:
        """Return bools in the broadcast shape of the indices."""
        ...


def visibility(anchors: Anchors, *, num_context: int, block_size: int) -> Sees:
    """Return the rule as the predicate that flex_attention takes; `dense_mask` evaluates the same.

    Args:
        anchors: Where the blocks start.
        num_context: S, the padded context length.
        block_size: Slots per block.
    """
    num_blocks = anchors.anchor_BN.shape[1]
    anchor_BN = anchors.anchor_BN.int()
    context_start_BN = anchors.context_start_BN.int()

    def sees(b: Tensor, _h: Tensor, q: Tensor, j: Tensor) -> Tensor:
        # A kernel's last tile may reach past the last query, which must still index some block.
        block = (q // block_size).clamp(max=num_blocks - 1)
        in_context = (context_start_BN[b, block] <= j) & (j < anchor_BN[b, block])
        in_block = (j >= num_context) & ((j - num_context) // block_size == block)
        return (in_context | in_block) & (q < num_blocks * block_size)

    return sees


def dense_mask(anchors: Anchors, *, num_context: int, block_size: int) -> Tensor:
    """Evaluate the rule for every pair; bool [B, 1, Q, T], True where the query sees the key.

    Args:
        anchors: Where the blocks start.
        num_context: S, the padded context length.
        block_size: Slots per block.
    """
    num_rows, num_blocks = anchors.anchor_BN.shape
    device = anchors.anchor_BN.device
    b_B11 = torch.arange(num_rows, device=device)[:, None, None]
    q_Q1 = torch.arange(num_blocks * block_size, device=device)[:, None]
    j_T = torch.arange(num_context + num_blocks * block_size, device=device)
    sees = visibility(anchors, num_context=num_context, block_size=block_size)
    return sees(b_B11, torch.zeros_like(b_B11), q_Q1, j_T)[:, None]
