"""Position-decayed cross-entropy of the draft tokens, without ever holding all logits.

Shape suffixes: B sequences, N blocks, K slots per block (slot 0 is the anchor and carries no loss),
M = B * N, Q = N * K, R rows that go through the head together, D hidden size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from train.anchors import BlockInputs


@dataclass(frozen=True)
class LossSums:
    """Sums over blocks, to be added over the micro-batches of an optimizer step.

    Attributes:
        numerator: Weighted cross-entropy in nats, scalar float32; the only field with a gradient.
        denominator: Sum of the weights, scalar float32; 0 when nothing carries loss.
        num_labels_K: Slots that carry loss, per slot.
        num_correct_K: Those whose most likely token is the label.
        num_prefix_correct_K: Complete blocks whose slots 1..k are all correct.
        num_complete_blocks: Blocks in which every slot but the anchor carries loss, scalar.
    """

    numerator: Tensor
    denominator: Tensor
    num_labels_K: Tensor
    num_correct_K: Tensor
    num_prefix_correct_K: Tensor
    num_complete_blocks: Tensor

    def detach(self) -> LossSums:
        """Return the same sums without the graph."""
        raise NotImplementedError

    def __add__(self, other: LossSums) -> LossSums:
        raise NotImplementedError

    @property
    def loss(self) -> float:
        """Mean weighted cross-entropy in nats per label; nan when nothing carries loss."""
        raise NotImplementedError

    @property
    def accuracy(self) -> list[float]:
        """Share of correct tokens at slots 1..K-1; nan for a slot without labels."""
        raise NotImplementedError

    @property
    def acceptance_length(self) -> float:
        """Estimate tokens per target step, the target's own included, from complete blocks.

        It supposes that the target would say the labels. nan without complete blocks.
        """
        raise NotImplementedError


def decay_constant(block_size: int) -> float:
    """Return the decay of the slots' weights, in slots, that suits a block size.

    Source:
        DFlash, arXiv 2602.06036 v2 for 16, 10 and 8; about 0.45 of the block size in between.
    """
    return {16: 7.0, 10: 5.0, 8: 4.0}.get(block_size, 0.45 * block_size)


def decayed_cross_entropy(
    hidden_BQD: Tensor,
    *,
    head: Callable[[Tensor], Tensor],
    inputs: BlockInputs,
    gamma: float,
    chunk_blocks: int = 128,
) -> LossSums:
    """Compare what the drafter says with the labels.

    Args:
        hidden_BQD: The drafter's output.
        head: The frozen target's path from states [R, D] to logits [R, V].
        inputs: Labels, and where they count.
        gamma: Decay of the weights exp(-(k - 1) / gamma), in slots.
        chunk_blocks: Blocks whose logits exist at the same time; bounds the memory.
    """
    raise NotImplementedError
