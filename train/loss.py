"""Position-decayed cross-entropy of the draft tokens, without ever holding all logits.

Shape suffixes: B sequences, N blocks, K slots per block (slot 0 is the anchor and carries no loss),
M = blocks of all sequences, Q = N * K, R rows that go through the head together, D hidden size,
V vocabulary.

The head is a constant, so the only gradient that its logits carry is the one to the drafter's
output. That gradient is computed with the loss, chunk by chunk, while a chunk's logits exist, and
kept: it is as small as the output itself. Checkpointing the chunks would hold as little, but run
the head, which is most of the work of a small drafter, a second time in the backward pass.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from train.anchors import BlockInputs


@dataclass(frozen=True)
class LossSums:
    """Sums over blocks, to be added over the micro-batches of an optimizer step.

    Attributes:
        numerator: Weighted cross-entropy in nats, scalar float32; the only field with a gradient.
        denominator: Sum of the weights, scalar float32; 0 when nothing carries loss.
        num_labels_K: Slots that carry loss, per slot.
        num_correct_K: Those whose most likely token is the label.
        num_prefix_correct_K: Complete blocks whose slots 1..k are all correct; slot 0 counts them.
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
        return LossSums(*(tensor.detach() for tensor in self._tensors()))

    def __add__(self, other: LossSums) -> LossSums:
        return LossSums(*(a + b for a, b in zip(self._tensors(), other._tensors(), strict=True)))

    @property
    def loss(self) -> float:
        """Mean weighted cross-entropy in nats per label; nan when nothing carries loss."""
        return (self.numerator.detach() / self.denominator).item()

    @property
    def accuracy(self) -> list[float]:
        """Share of correct tokens at slots 1..K-1; nan for a slot without labels."""
        shares: list[float] = (self.num_correct_K / self.num_labels_K)[1:].tolist()
        return shares

    @property
    def acceptance_length(self) -> float:
        """Estimate tokens per target step, the target's own included, from complete blocks.

        It supposes that the target would say the labels. nan without complete blocks.
        """
        # Slot 0 counts every complete block once, which is the target's own token.
        return (self.num_prefix_correct_K.sum() / self.num_complete_blocks).item()

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]


def slot_weights(block_size: int, *, gamma: float, device: torch.device) -> Tensor:
    """Return exp(-(k - 1) / gamma) for slots k >= 1, and 0 for the anchor; [K], float32."""
    slot_K = torch.arange(block_size, device=device)
    # Writing the zero into the result would copy it from the host, which waits for the device.
    return torch.exp(-(slot_K - 1) / gamma) * (slot_K > 0)


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
    block_size = inputs.labels_BNK.shape[2]
    labels_MK = inputs.labels_BNK.flatten(0, 1)
    has_label_MK = inputs.has_label_BNK.flatten(0, 1)
    weight_K = slot_weights(block_size, gamma=gamma, device=hidden_BQD.device)
    weight_MK = weight_K * has_label_MK
    hidden_MKD = hidden_BQD.reshape(-1, block_size, hidden_BQD.shape[-1])
    chunked: Any = _ChunkedCrossEntropy.apply
    numerator, correct_MK = chunked(hidden_MKD, labels_MK, weight_MK, head, chunk_blocks)
    is_complete_M1 = has_label_MK[:, 1:].all(dim=1, keepdim=True)
    # The anchor is known, hence right: with it, slot 0 counts the complete blocks.
    prefix_MK = torch.cat((is_complete_M1, correct_MK[:, 1:] & is_complete_M1), dim=1)
    return LossSums(
        numerator=numerator,
        denominator=weight_MK.sum(),
        num_labels_K=has_label_MK.sum(dim=0),
        num_correct_K=correct_MK.sum(dim=0),
        num_prefix_correct_K=prefix_MK.cumprod(dim=1).sum(dim=0),
        num_complete_blocks=is_complete_M1.sum(),
    )


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Weighted sum of cross-entropies over blocks, whose gradient is found on the way forward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MKD: Tensor,
        labels_MK: Tensor,
        weight_MK: Tensor,
        head: Callable[[Tensor], Tensor],
        chunk_blocks: int,
    ) -> tuple[Tensor, Tensor]:
        """Return the sum, float32, and which labelled slots are right."""
        numerator = torch.zeros((), device=hidden_MKD.device)
        correct_MK = torch.zeros_like(labels_MK, dtype=torch.bool)
        grad_MKD = torch.zeros_like(hidden_MKD) if ctx.needs_input_grad[0] else None
        for first in range(0, len(labels_MK), chunk_blocks):
            chunk = slice(first, first + chunk_blocks)
            row_R = _rows_for_head(weight_MK[chunk])
            weight_R = weight_MK[chunk].flatten()[row_R]
            hidden_RD = hidden_MKD[chunk].flatten(0, 1)[row_R].requires_grad_(grad_MKD is not None)
            with torch.set_grad_enabled(grad_MKD is not None):
                partial_sum, correct_R = _weighted_cross_entropy(
                    head(hidden_RD), label_R=labels_MK[chunk].flatten()[row_R], weight_R=weight_R
                )
            numerator += partial_sum.detach()
            correct_MK[chunk].view(-1)[row_R] = correct_R & (weight_R > 0)
            if grad_MKD is not None:
                (grad_RD,) = torch.autograd.grad(partial_sum, hidden_RD)
                grad_MKD[chunk].view(-1, grad_RD.shape[-1])[row_R] = grad_RD
        ctx.save_for_backward(grad_MKD)
        ctx.mark_non_differentiable(correct_MK)
        return numerator, correct_MK

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradient that `forward` kept; the second output has none."""
        (grad_MKD,) = ctx.saved_tensors
        return grad_MKD * grads[0].to(grad_MKD.dtype), None, None, None, None


def _weighted_cross_entropy(
    logits_RV: Tensor, *, label_R: Tensor, weight_R: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the weighted sum in float32, and where the most likely token is the label."""
    entropy_R = functional.cross_entropy(logits_RV.float(), label_R, reduction="none")
    return (entropy_R * weight_R).sum(), logits_RV.detach().argmax(dim=-1) == label_R


def _rows_for_head(weight_MK: Tensor) -> Tensor:
    """Pick the slots, as indices [R] into M * K, that go through the head.

    On the CPU those that carry loss: the head is most of the work. Elsewhere all but the anchors,
    because to count them the host would have to wait for the device.
    """
    if weight_MK.device.type == "cpu":
        return weight_MK.flatten().nonzero().squeeze(1)
    slot_MK = torch.arange(weight_MK.numel(), device=weight_MK.device).view_as(weight_MK)
    return slot_MK[:, 1:].flatten()
