from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.autograd import backward
from torch.nn import functional

from train import loss as loss_module
from train.anchors import BlockInputs, block_inputs, sample_anchors
from train.attention import DenseMask
from train.loss import LossSums, decayed_cross_entropy, slot_weights
from train.objective import Objective, Rows, draft_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.train.conftest import TinyTarget
    from train.drafter import Drafter

CPU = torch.device("cpu")
OBJECTIVE = Objective(num_anchors=6, gamma=4.0, attention=DenseMask())


def labelled(labels: list[list[int]], has_label: list[list[bool]]) -> BlockInputs:
    """Return one row of blocks with these labels."""
    labels_BNK = torch.tensor([labels])
    unused = torch.zeros(0, dtype=torch.int64)
    return BlockInputs(unused, unused, labels_BNK, torch.tensor([has_label]))


class Drawn(NamedTuple):
    """A random loss problem: output of a drafter, a head, labels with holes."""

    hidden_BQD: Tensor
    head: Callable[[Tensor], Tensor]
    inputs: BlockInputs


@pytest.fixture
def drawn() -> Drawn:
    torch.manual_seed(0)
    weight = torch.randn(11, 8)
    has_label_BNK = torch.rand(2, 5, 4) < 0.6
    has_label_BNK[..., 0] = False
    has_label_BNK[0, 1, 1:] = True
    unused = torch.zeros(0, dtype=torch.int64)
    inputs = BlockInputs(unused, unused, torch.randint(0, 11, (2, 5, 4)), has_label_BNK)
    return Drawn(torch.randn(2, 20, 8, requires_grad=True), lambda x: x @ weight.T, inputs)


def loss_of(drawn: Drawn, *, chunk_blocks: int = 128) -> LossSums:
    return decayed_cross_entropy(
        drawn.hidden_BQD, head=drawn.head, inputs=drawn.inputs, gamma=2.0, chunk_blocks=chunk_blocks
    )


def gradient_of(value: Tensor, drawn: Drawn) -> Tensor:
    (gradient,) = torch.autograd.grad(value, drawn.hidden_BQD)
    return gradient


@pytest.mark.parametrize(("block_size", "gamma"), [(16, 7.0), (10, 5.0), (8, 4.0)])
def test_weights_decay_from_the_first_drafted_slot(block_size: int, gamma: float) -> None:
    weights = slot_weights(block_size, gamma=gamma, device=CPU).tolist()
    assert weights[0] == 0
    assert weights[1:] == pytest.approx([math.exp(-k / gamma) for k in range(block_size - 1)])


def test_known_logits_give_known_sums() -> None:
    logits = torch.tensor([[9.0, 9.0], [0.0, 1.0], [2.0, 0.0], [7.0, 7.0], [0.0, 3.0], [0.0, 0.0]])
    inputs = labelled([[0, 1, 0], [0, 0, 1]], [[False, True, True], [False, True, False]])
    sums = decayed_cross_entropy(logits[None], head=lambda x: x, inputs=inputs, gamma=2.0)
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
    sums = decayed_cross_entropy(
        logits, head=lambda x: x, inputs=labelled([[0, 1, 1, 1]] * 3, label), gamma=2.0
    )
    assert sums.num_correct_K.tolist() == [0, 2, 2, 3]
    assert sums.num_prefix_correct_K.tolist() == [3, 2, 1, 1]
    assert sums.acceptance_length == pytest.approx((2 + 1 + 4) / 3)


def test_value_and_gradient_are_those_of_all_logits_at_once(drawn: Drawn) -> None:
    sums = loss_of(drawn)
    logits = drawn.head(drawn.hidden_BQD)
    entropy = functional.cross_entropy(
        logits.flatten(0, 1), drawn.inputs.labels_BNK.flatten(), reduction="none"
    )
    weights = (slot_weights(4, gamma=2.0, device=CPU) * drawn.inputs.has_label_BNK).flatten()
    numerator = (entropy * weights).sum()
    torch.testing.assert_close(sums.numerator, numerator)
    torch.testing.assert_close(sums.denominator, weights.sum())
    # A factor on top, as the division by the denominator and the clipping will put there.
    torch.testing.assert_close(
        gradient_of(0.3 * sums.numerator, drawn), gradient_of(0.3 * numerator, drawn)
    )


@pytest.mark.parametrize("chunk_blocks", [1, 3, 10])
def test_chunks_change_nothing(drawn: Drawn, chunk_blocks: int) -> None:
    whole, chunked = loss_of(drawn), loss_of(drawn, chunk_blocks=chunk_blocks)
    for field in dataclasses.fields(LossSums):
        torch.testing.assert_close(getattr(whole, field.name), getattr(chunked, field.name))
    torch.testing.assert_close(
        gradient_of(chunked.numerator, drawn), gradient_of(whole.numerator, drawn)
    )


def test_slots_without_labels_may_go_through_the_head(
    drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = loss_of(drawn)

    def all_slots(weight_MK: Tensor) -> Tensor:
        return torch.arange(weight_MK.numel()).view_as(weight_MK)[:, 1:].flatten()

    # What a GPU does, which does not wait to learn how many slots carry loss.
    monkeypatch.setattr(loss_module, "_rows_for_head", all_slots)
    many = loss_of(drawn)
    for field in dataclasses.fields(LossSums):
        torch.testing.assert_close(getattr(few, field.name), getattr(many, field.name))
    torch.testing.assert_close(
        gradient_of(many.numerator, drawn), gradient_of(few.numerator, drawn)
    )


def test_the_head_sees_a_chunk_at_a_time_and_never_an_anchor(drawn: Drawn) -> None:
    seen: list[Tensor] = []

    def head(hidden_RD: Tensor) -> Tensor:
        seen.append(hidden_RD.detach())
        return drawn.head(hidden_RD)

    sums = loss_of(drawn._replace(head=head), chunk_blocks=2)
    backward(sums.numerator)
    assert len(seen) == 5
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
    sums = decayed_cross_entropy(hidden, head=lambda x: x, inputs=inputs, gamma=4.0)
    assert (sums.loss < 1e-6) == is_right
    assert (sums.acceptance_length == 4.0) == is_right
