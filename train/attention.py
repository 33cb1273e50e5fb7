"""Which tokens a block sees in training, as attention that the drafter can call.

Shape suffixes: B sequences, N blocks, H query heads, G key/value heads, Q = N * block size draft
tokens, S context tokens, T = S + Q, E head dim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train.anchors import Anchors
    from train.drafter import Attend


def training_attention(
    anchors: Anchors, *, num_context: int, block_size: int, num_heads: int
) -> Attend:
    """Return attention under the training mask: compiled flex on CUDA, dense elsewhere.

    Args:
        anchors: Where the blocks start.
        num_context: S, the padded context length.
        block_size: Slots per block.
        num_heads: Query heads, to predict what the dense path would allocate.

    Raises:
        DenseAttentionTooLargeError: The dense path would need more memory than its budget.
        FusedAttentionError: torch's settings would let flex_attention run unfused.
    """
    raise NotImplementedError
