"""The loss of the draft tokens, without ever holding all logits.

Each slot's prediction is compared with its label (cross-entropy), or with the distribution that the
target itself had for that token (distillation), and weighed by `train.slot_weights`.

Shape suffixes: B sequences, S context tokens, N blocks, K slots per block (slot 0 is the anchor and
carries no loss), M = blocks of all sequences, Q = N * K, R rows that go through the head together,
D hidden size, V vocabulary, X = B * S.

The head is a constant, so the only gradient that its logits carry is the one to the drafter's
output. That gradient is computed with the loss, chunk by chunk, while a chunk's logits exist, and
kept: it is as small as the output itself. Checkpointing the chunks would hold as little, but run
the head, which is most of the work of a small drafter, a second time in the backward pass.

Source: DFlash, arXiv 2602.06036 v2, for cross-entropy with the answer's own tokens; arXiv
1503.02531 for the temperature of a distillation; Liger, arXiv 2410.10989, for gradients on the way
forward.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from train.anchors import BlockInputs
    from train.slot_weights import SlotWeights


@dataclass(frozen=True)
class LossSums:
    """Sums over blocks, to be added over the micro-batches of an optimizer step.

    Attributes:
        numerator: Weighted loss in nats, scalar float32; the only field with a gradient.
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
        """Mean weighted loss in nats per label; nan when nothing carries loss."""
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


@dataclass(frozen=True)
class Teacher:
    """The target's own distribution over each slot's token.

    Attributes:
        final_XD: The target's states after its final norm, of all tokens of all rows.
        index_MK: Row of `final_XD` that predicts each slot: the token before the slot's own
            position, anchor + k - 1. Any row for slots without a label.
        temperature: Divides both logits; above 1 the less likely tokens count more.
    """

    final_XD: Tensor
    index_MK: Tensor
    temperature: float = 1.0


def draft_sums(
    hidden_BQD: Tensor,
    *,
    head: Callable[[Tensor], Tensor],
    inputs: BlockInputs,
    weights: SlotWeights,
    teacher: Teacher | None = None,
    chunk_blocks: int = 128,
) -> LossSums:
    """Compare what the drafter says with the labels, or with what the target would have said.

    Args:
        hidden_BQD: The drafter's output.
        head: The frozen target's path from states [R, D] to logits [R, V].
        inputs: Labels, and where they count.
        weights: How much each slot counts.
        teacher: For distillation, where the target's states are; None compares with the labels.
        chunk_blocks: Blocks whose logits exist at the same time; bounds the memory.
    """
    has_label_MK = inputs.has_label_BNK.flatten(0, 1)
    comparison = _Comparison(
        labels_MK=inputs.labels_BNK.flatten(0, 1),
        has_label_MK=has_label_MK,
        head=head,
        weights=weights,
        teacher=teacher,
    )
    hidden_MKD = hidden_BQD.reshape(*has_label_MK.shape, hidden_BQD.shape[-1])
    chunked: Any = _ChunkedLoss.apply
    numerator, denominator, correct_MK = chunked(hidden_MKD, comparison, chunk_blocks)
    is_complete_M1 = has_label_MK[:, 1:].all(dim=1, keepdim=True)
    # The anchor is known, hence right: with it, slot 0 counts the complete blocks.
    prefix_MK = torch.cat((is_complete_M1, correct_MK[:, 1:] & is_complete_M1), dim=1)
    return LossSums(
        numerator=numerator,
        denominator=denominator,
        num_labels_K=has_label_MK.sum(dim=0),
        num_correct_K=correct_MK.sum(dim=0),
        num_prefix_correct_K=prefix_MK.cumprod(dim=1).sum(dim=0),
        num_complete_blocks=is_complete_M1.sum(),
    )


class _Compared(NamedTuple):
    """What a chunk gave: the weighted loss, the sum of its weights, which rows are right."""

    numerator: Tensor
    denominator: Tensor
    is_correct_R: Tensor


@dataclass(frozen=True)
class _Comparison:
    """Everything but the drafter's output that the loss of some blocks depends on."""

    labels_MK: Tensor
    has_label_MK: Tensor
    head: Callable[[Tensor], Tensor]
    weights: SlotWeights
    teacher: Teacher | None

    def of_blocks(self, chunk: slice) -> _Comparison:
        """Return the comparison of some blocks alone."""
        teacher = self.teacher
        if teacher is not None:
            teacher = dataclasses.replace(teacher, index_MK=teacher.index_MK[chunk])
        return dataclasses.replace(
            self,
            labels_MK=self.labels_MK[chunk],
            has_label_MK=self.has_label_MK[chunk],
            teacher=teacher,
        )

    def rows_for_head(self) -> Tensor:
        """Pick the slots, as indices [R] into M * K, that go through the head.

        On the CPU those that carry loss: the head is most of the work. Elsewhere all but the
        anchors, because to count them the host would have to wait for the device.
        """
        if self.has_label_MK.device.type == "cpu":
            return self.has_label_MK.flatten().nonzero().squeeze(1)
        slot = torch.arange(self.has_label_MK.numel(), device=self.has_label_MK.device)
        return slot.view_as(self.has_label_MK)[:, 1:].flatten()

    def __call__(self, hidden_RD: Tensor, row_R: Tensor) -> _Compared:
        """Compare the drafter's states of some slots, with a gradient to them."""
        logits_RV = self.head(hidden_RD)
        label_R = self.labels_MK.flatten()[row_R]
        log_draft_RV = functional.log_softmax(logits_RV.float(), dim=-1)
        entropy_R = -log_draft_RV.gather(1, label_R[:, None]).squeeze(1)
        loss_R = entropy_R
        if self.teacher is not None:
            loss_R = self._divergence(log_draft_RV, row_R, self.teacher)
        entropy_MK = torch.zeros_like(self.labels_MK, dtype=torch.float32)
        entropy_MK.view(-1)[row_R] = entropy_R.detach()
        weight_MK = self.weights(entropy_MK, has_label_MK=self.has_label_MK)
        return _Compared(
            numerator=(loss_R * weight_MK.flatten()[row_R]).sum(),
            denominator=weight_MK.sum(),
            is_correct_R=(logits_RV.detach().argmax(dim=-1) == label_R)
            & self.has_label_MK.flatten()[row_R],
        )

    def _divergence(self, log_draft_RV: Tensor, row_R: Tensor, teacher: Teacher) -> Tensor:
        """Return KL(target || drafter) in nats of each row.

        Times the squared temperature, so that the gradient keeps its size whatever that is.
        """
        with torch.no_grad():
            final_RD = teacher.final_XD[teacher.index_MK.flatten()[row_R]]
            log_target_RV = self.head(final_RD).float() / teacher.temperature
            log_target_RV = functional.log_softmax(log_target_RV, dim=-1)
        if teacher.temperature != 1.0:
            # Log-probabilities are logits but for a constant, which the softmax takes out again.
            log_draft_RV = functional.log_softmax(log_draft_RV / teacher.temperature, dim=-1)
        kl_RV = log_target_RV.exp() * (log_target_RV - log_draft_RV)
        return kl_RV.sum(dim=-1) * teacher.temperature**2


class _ChunkedLoss(torch.autograd.Function):
    """Weighted sum of the losses of blocks, whose gradient is found on the way forward."""

    @staticmethod
    def forward(
        ctx: Any, hidden_MKD: Tensor, comparison: _Comparison, chunk_blocks: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sum and the sum of weights, float32, and which labelled slots are right."""
        numerator = torch.zeros((), device=hidden_MKD.device)
        denominator = torch.zeros_like(numerator)
        is_correct_MK = torch.zeros_like(comparison.has_label_MK)
        grad_MKD = torch.zeros_like(hidden_MKD) if ctx.needs_input_grad[0] else None
        for first in range(0, len(hidden_MKD), chunk_blocks):
            chunk = slice(first, first + chunk_blocks)
            compare = comparison.of_blocks(chunk)
            row_R = compare.rows_for_head()
            hidden_RD = hidden_MKD[chunk].flatten(0, 1)[row_R].requires_grad_(grad_MKD is not None)
            with torch.set_grad_enabled(grad_MKD is not None):
                compared = compare(hidden_RD, row_R)
            numerator += compared.numerator.detach()
            denominator += compared.denominator
            is_correct_MK[chunk].view(-1)[row_R] = compared.is_correct_R
            if grad_MKD is not None:
                (grad_RD,) = torch.autograd.grad(compared.numerator, hidden_RD)
                grad_MKD[chunk].view(-1, grad_RD.shape[-1])[row_R] = grad_RD
        ctx.save_for_backward(grad_MKD)
        ctx.mark_non_differentiable(denominator, is_correct_MK)
        return numerator, denominator, is_correct_MK

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradient that `forward` kept; the other outputs have none."""
        (grad_MKD,) = ctx.saved_tensors
        return grad_MKD * grads[0].to(grad_MKD.dtype), None, None
