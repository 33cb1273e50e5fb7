from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.autograd import backward
from torch.nn import functional

from train.anchors import BlockInputs, block_inputs, sample_anchors
from train.attention import DenseMask
from train.loss import LossSums, Teacher, _Comparison, draft_sums
from train.objective import Objective, Rows, draft_loss
from train.slot_weights import DecayedWeights, PathWeights, SlotWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.train.conftest import TinyTarget
    from train.drafter import Drafter

GAMMA_2 = DecayedWeights(2.0)
OBJECTIVE = Objective(num_anchors=6, weights=DecayedWeights(4.0), attention=DenseMask())


def labelled(labels: list[list[int]], has_label: list[list[bool]]) -> BlockInputs:
    """Return one row of blocks with these labels."""
    labels_BNK = torch.tensor([labels])
    unused = torch.zeros(0, dtype=torch.int64)
    return BlockInputs(unused, unused, labels_BNK, torch.tensor([has_label]))


class Drawn(NamedTuple):
    """A random loss problem: output of a drafter, a head, labels with holes, a loss."""

    hidden_BQD: Tensor
    head: Callable[[Tensor], Tensor]
    inputs: BlockInputs
    weights: SlotWeights = GAMMA_2
    teacher: Teacher | None = None


@pytest.fixture
def drawn() -> Drawn:
    """Two rows of five blocks of four slots, compared with their labels."""
    torch.manual_seed(0)
    weight = torch.randn(11, 8)
    has_label_BNK = torch.rand(2, 5, 4) < 0.6
    has_label_BNK[..., 0] = False
    has_label_BNK[0, 1, 1:] = True
    unused = torch.zeros(0, dtype=torch.int64)
    inputs = BlockInputs(unused, unused, torch.randint(0, 11, (2, 5, 4)), has_label_BNK)
    return Drawn(torch.randn(2, 20, 8, requires_grad=True), lambda x: x @ weight.T, inputs)


def random_teacher(temperature: float) -> Teacher:
    """Return states of 14 tokens, and one of them for each slot of `drawn`."""
    generator = torch.Generator().manual_seed(1)
    return Teacher(
        torch.randn(14, 8, generator=generator),
        torch.randint(0, 14, (10, 4), generator=generator),
        temperature,
    )


@pytest.fixture(params=["ce", "dpace", "distill", "dpace-distill"])
def any_loss(drawn: Drawn, request: pytest.FixtureRequest) -> Drawn:
    """The same problem under each loss."""
    if "dpace" in request.param:
        drawn = drawn._replace(weights=PathWeights(0.3))
    if "distill" in request.param:
        drawn = drawn._replace(teacher=random_teacher(1.5))
    return drawn


def loss_of(drawn: Drawn, *, chunk_blocks: int = 128) -> LossSums:
    return draft_sums(
        drawn.hidden_BQD,
        head=drawn.head,
        inputs=drawn.inputs,
        weights=drawn.weights,
        teacher=drawn.teacher,
        chunk_blocks=chunk_blocks,
    )


def gradient_of(value: Tensor, drawn: Drawn) -> Tensor:
    (gradient,) = torch.autograd.grad(value, drawn.hidden_BQD)
    return gradient


def test_known_logits_give_known_sums() -> None:
    logits = torch.tensor([[9.0, 9.0], [0.0, 1.0], [2.0, 0.0], [7.0, 7.0], [0.0, 3.0], [0.0, 0.0]])
    inputs = labelled([[0, 1, 0], [0, 0, 1]], [[False, True, True], [False, True, False]])
    sums = draft_sums(logits[None], head=lambda x: x, inputs=inputs, weights=GAMMA_2)
    second = math.exp(-1 / 2)
    cross_entropies = (math.log1p(math.exp(-1)), math.log1p(math.exp(-2)), math.log1p(math.exp(3)))
    expected = cross_entropies[0] + second * cross_entropies[1] + cross_entropies[2]
    assert sums.numerator.item() == pytest.approx(expected)
    assert sums.denominator.item() == pytest.approx(2 + second)
    assert sums.loss == pytest.approx(expected / (2 + second))
    assert sums.num_labels_K.tolist() == [0, 2, 1]
    assert sums.accuracy == [0.5, 1.0]
    # The only complete block is right twice: two tokens and the target's own.
    assert sums.num_complete_blocks.item() == 1
    assert sums.acceptance_length == 3.0


def test_a_prefix_ends_at_the_first_wrong_slot() -> None:
    says = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1]])
    logits = functional.one_hot(says, 2).flatten(0, 1)[None].float()
    label = [[False, True, True, True]] * 3
    sums = draft_sums(
        logits, head=lambda x: x, inputs=labelled([[0, 1, 1, 1]] * 3, label), weights=GAMMA_2
    )
    assert sums.num_correct_K.tolist() == [0, 2, 2, 3]
    assert sums.num_prefix_correct_K.tolist() == [3, 2, 1, 1]
    assert sums.acceptance_length == pytest.approx((2 + 1 + 4) / 3)


def all_at_once(drawn: Drawn) -> tuple[Tensor, Tensor]:
    """Return numerator and denominator from whole logits, the way the definitions read."""
    log_draft_MKV = drawn.head(drawn.hidden_BQD).view(10, 4, 11).log_softmax(-1)
    label_MK = drawn.inputs.labels_BNK.flatten(0, 1)
    entropy_MK = -log_draft_MKV.gather(2, label_MK[..., None])[..., 0]
    has_label_MK = drawn.inputs.has_label_BNK.flatten(0, 1)
    weight_MK = drawn.weights(entropy_MK.detach(), has_label_MK=has_label_MK)
    loss_MK = entropy_MK
    if drawn.teacher is not None:
        temperature = drawn.teacher.temperature
        final_MKD = drawn.teacher.final_XD[drawn.teacher.index_MK]
        target_MKV = (drawn.head(final_MKD) / temperature).softmax(-1)
        log_draft_MKV = (drawn.head(drawn.hidden_BQD).view(10, 4, 11) / temperature).log_softmax(-1)
        kl_MKV = functional.kl_div(log_draft_MKV, target_MKV, reduction="none")
        loss_MK = kl_MKV.sum(-1) * temperature**2
    return (weight_MK * loss_MK).sum(), weight_MK.sum()


def test_value_and_gradient_are_those_of_all_logits_at_once(any_loss: Drawn) -> None:
    sums = loss_of(any_loss)
    numerator, denominator = all_at_once(any_loss)
    torch.testing.assert_close(sums.numerator, numerator)
    torch.testing.assert_close(sums.denominator, denominator)
    # A factor on top, as the division by the denominator and the clipping will put there.
    torch.testing.assert_close(
        gradient_of(0.3 * sums.numerator, any_loss), gradient_of(0.3 * numerator, any_loss)
    )


@pytest.mark.parametrize("chunk_blocks", [1, 3, 10])
def test_chunks_change_nothing(any_loss: Drawn, chunk_blocks: int) -> None:
    whole, chunked = loss_of(any_loss), loss_of(any_loss, chunk_blocks=chunk_blocks)
    assert_same_sums(whole, chunked)
    torch.testing.assert_close(
        gradient_of(chunked.numerator, any_loss), gradient_of(whole.numerator, any_loss)
    )


def assert_same_sums(found: LossSums, wanted: LossSums) -> None:
    for field in dataclasses.fields(LossSums):
        torch.testing.assert_close(getattr(found, field.name), getattr(wanted, field.name))


def test_slots_without_labels_may_go_through_the_head(
    any_loss: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = loss_of(any_loss)

    def all_slots(self: _Comparison) -> Tensor:
        slot_MK = torch.arange(self.has_label_MK.numel()).view_as(self.has_label_MK)
        return slot_MK[:, 1:].flatten()

    # What a GPU does, which does not wait to learn how many slots carry loss.
    monkeypatch.setattr(_Comparison, "rows_for_head", all_slots)
    many = loss_of(any_loss)
    assert_same_sums(few, many)
    torch.testing.assert_close(
        gradient_of(many.numerator, any_loss), gradient_of(few.numerator, any_loss)
    )


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_a_drafter_that_says_what_the_target_said_has_nothing_to_learn(
    drawn: Drawn, temperature: float
) -> None:
    teacher = random_teacher(temperature)
    says_MKD = teacher.final_XD[teacher.index_MK]
    hidden_BQD = says_MKD.view(2, 20, 8).clone().requires_grad_()
    taught = drawn._replace(hidden_BQD=hidden_BQD, teacher=teacher)
    sums = loss_of(taught)
    assert abs(sums.loss) < 1e-6
    assert gradient_of(sums.numerator, taught).abs().max() < 1e-6
    assert loss_of(drawn._replace(teacher=teacher)).loss > 0.1


def test_the_head_sees_a_chunk_at_a_time_and_never_an_anchor(drawn: Drawn) -> None:
    seen: list[Tensor] = []

    def head(hidden_RD: Tensor) -> Tensor:
        seen.append(hidden_RD.detach())
        return drawn.head(hidden_RD)

    sums = loss_of(drawn._replace(head=head), chunk_blocks=2)
    backward(sums.numerator)
    assert len(seen) == math.ceil(10 / 2)
    assert max(len(rows) for rows in seen) <= 2 * 3
    rows = torch.cat(seen)
    assert len(rows) == int(drawn.inputs.has_label_BNK.sum())
    anchors = drawn.hidden_BQD.detach().view(2, 5, 4, 8)[:, :, 0].flatten(0, 1)
    assert not (rows[:, None] == anchors).all(dim=-1).any()


def test_without_gradient_only_the_sums_are_found(drawn: Drawn) -> None:
    wanted = loss_of(drawn)
    with torch.no_grad():
        sums = loss_of(drawn._replace(hidden_BQD=drawn.hidden_BQD.detach()))
    assert not sums.numerator.requires_grad
    torch.testing.assert_close(sums.numerator, wanted.numerator.detach())


def test_bfloat16_states_are_compared_in_float32(drawn: Drawn) -> None:
    low = drawn._replace(
        hidden_BQD=drawn.hidden_BQD.detach().bfloat16().requires_grad_(),
        head=lambda x: drawn.head(x.float()).bfloat16(),
    )
    sums = loss_of(low)
    assert sums.numerator.dtype == torch.float32
    assert gradient_of(sums.numerator, low).dtype == torch.bfloat16
    assert sums.loss == pytest.approx(loss_of(drawn).loss, rel=0.02)


def test_sums_of_micro_batches_are_those_of_the_whole(
    target: TinyTarget, drafter_of: Callable[..., Drafter], rows_of: Callable[..., Rows]
) -> None:
    drafter, rows = drafter_of(), rows_of(3)
    masks = rows.loss_mask_BS & (torch.arange(24) < torch.tensor([[24], [9], [15]]))
    rows = dataclasses.replace(rows, loss_mask_BS=masks)

    def gradients(parts: Iterator[Rows]) -> tuple[LossSums, list[Tensor]]:
        drafter.zero_grad()
        losses = [draft_loss(drafter, target=target, rows=p, objective=OBJECTIVE) for p in parts]
        for one in losses:
            backward(one.numerator)
        total = sum((one.detach() for one in losses[1:]), start=losses[0].detach())
        grads = [p.grad / total.denominator for p in drafter.parameters() if p.grad is not None]
        return total, grads

    whole, wanted = gradients(iter([rows]))
    single = (
        Rows(*(getattr(rows, f.name)[i : i + 1] for f in dataclasses.fields(Rows)[:4]))
        for i in range(3)
    )
    total, found = gradients(single)
    for field in dataclasses.fields(LossSums):
        torch.testing.assert_close(getattr(total, field.name), getattr(whole, field.name))
    torch.testing.assert_close(found, wanted)


def test_rows_without_anchors_give_zero_and_zero_gradients(
    target: TinyTarget, drafter_of: Callable[..., Drafter], rows_of: Callable[..., Rows]
) -> None:
    rows = rows_of(2)
    rows = dataclasses.replace(rows, loss_mask_BS=torch.zeros_like(rows.loss_mask_BS))
    drafter = drafter_of()
    sums = draft_loss(drafter, target=target, rows=rows, objective=OBJECTIVE)
    backward(sums.numerator)
    assert (sums.numerator.item(), sums.denominator.item()) == (0.0, 0.0)
    assert math.isnan(sums.loss)
    assert math.isnan(sums.acceptance_length)
    for name, parameter in drafter.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


@pytest.mark.parametrize(("shift", "is_right"), [(0, True), (1, False), (-1, False)])
def test_an_oracle_at_the_same_position_is_right(
    rows_of: Callable[..., Rows],
    shift: int,
    is_right: bool,
) -> None:
    rows = rows_of(2)
    anchors = sample_anchors(rows.loss_mask_BS, keys_BS=rows.keys_BS, num_anchors=6)
    inputs = block_inputs(
        rows.ids_BS, loss_mask_BS=rows.loss_mask_BS, anchors=anchors, block_size=4, mask_token_id=60
    )
    # The oracle says, at each slot, the row's token at that slot's position.
    position = (inputs.positions_BT[:, 24:] + shift).clamp(0, 23)
    hidden = 50.0 * functional.one_hot(rows.ids_BS.gather(1, position), 61).float()
    sums = draft_sums(hidden, head=lambda x: x, inputs=inputs, weights=GAMMA_2)
    assert (sums.loss < 1e-6) == is_right
    assert (sums.acceptance_length == 4.0) == is_right
