from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch.autograd import backward
from torch.nn import functional

from tests.train.conftest import MASK, keys
from tests.train.decoding import decode_blocks, decode_plain
from train.anchors import block_inputs, sample_anchors
from train.attention import DenseMask
from train.loss import draft_sums
from train.objective import Objective, Rows, draft_loss, teacher_of
from train.optimizer import build_optimizer, set_learning_rate
from train.schedule import warmup_stable_cosine
from train.slot_weights import DecayedWeights

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.train.conftest import TinyTarget
    from train.drafter import Drafter

NUM_STEPS = 150


def test_what_was_learned_by_heart_is_accepted_when_decoding(
    target: TinyTarget, drafter_of: Callable[..., Drafter]
) -> None:
    """Any shift between training and decoding, of a layer, a position or a label, fails here."""
    prompt = [3, 14, 15, 9, 26]
    answer = decode_plain(target, prompt, max_new_tokens=40, stop_ids=())
    ids_1S = torch.tensor([[*prompt, *answer.tokens]])
    objective = Objective(num_anchors=16, weights=DecayedWeights(2.0), attention=DenseMask())
    drafter = drafter_of(4)
    optimizer = build_optimizer(drafter, peak_lr=1e-2)
    losses = []
    for step in range(NUM_STEPS):
        rows = Rows(
            ids_BS=ids_1S,
            loss_mask_BS=(torch.arange(ids_1S.shape[1]) >= len(prompt))[None],
            keys_BS=keys(1, ids_1S.shape[1], epoch=step),
            target_hidden_BSF=target.states(ids_1S).tapped_BTF,
        )
        sums = draft_loss(drafter, target=target, rows=rows, objective=objective)
        backward(sums.numerator / sums.denominator)
        share = warmup_stable_cosine(
            step,
            num_steps=NUM_STEPS,
            num_warmup_steps=10,
            num_decay_steps=NUM_STEPS - 10,
        )
        set_learning_rate(optimizer, 1e-2 * share)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sums.loss)
    assert losses[0] > 3
    assert losses[-1] < 0.1
    decoding = decode_blocks(target, drafter, prompt, max_new_tokens=40, stop_ids=())
    assert decoding.tokens == answer.tokens
    # Of 4 at most, which the last round misses: it drafts beyond what was learned.
    assert decoding.acceptance_length > 3.5


@pytest.mark.parametrize(("shift", "agrees"), [(0, True), (1, False), (-1, False)])
def test_the_teacher_of_a_slot_is_the_state_before_its_token(
    rows_of: Callable[..., Rows], shift: int, agrees: bool
) -> None:
    # Every token that can be an anchor is one, the first of the row included.
    rows = rows_of(2, prompt=0)
    anchors = sample_anchors(rows.loss_mask_BS, keys_BS=rows.keys_BS, num_anchors=24)
    inputs = block_inputs(
        rows.ids_BS, loss_mask_BS=rows.loss_mask_BS, anchors=anchors, block_size=4, mask_token_id=60
    )
    # States that say the next token, as those of a sure target; and a drafter that knows it too.
    said_BS = rows.ids_BS.roll(-1 - shift, dims=1)
    objective = Objective(24, DecayedWeights(2.0), DenseMask(), temperature=1.0)
    sure = dataclasses.replace(rows, target_final_BSD=9.0 * functional.one_hot(said_BS, 61).float())
    knows = 9.0 * functional.one_hot(inputs.labels_BNK.flatten(1), 61).float()
    sums = draft_sums(
        knows,
        head=lambda x: x,
        inputs=inputs,
        weights=objective.weights,
        teacher=teacher_of(sure, anchors, block_size=4, objective=objective),
    )
    assert (abs(sums.loss) < 1e-5) == agrees


def test_distilling_from_the_target_is_the_divergence_from_its_logits(
    target: TinyTarget, drafter_of: Callable[..., Drafter], rows_of: Callable[..., Rows]
) -> None:
    drafter, rows = drafter_of(4), rows_of(1)
    states = target.states(rows.ids_BS)
    rows = dataclasses.replace(rows, target_final_BSD=states.final_BTD)
    objective = Objective(3, DecayedWeights(2.0), DenseMask(), temperature=1.0)
    sums = draft_loss(drafter, target=target, rows=rows, objective=objective)
    anchors = sample_anchors(rows.loss_mask_BS, keys_BS=rows.keys_BS, num_anchors=3)
    target_logits_TV = target.logits(states.final_BTD)[0]
    total = 0.0
    for anchor in anchors.anchor_BN[0].tolist():
        ids_1K = torch.tensor([[rows.ids_BS[0, anchor].item(), MASK, MASK, MASK]])
        hidden_1KD = drafter(
            target.embed(ids_1K),
            target_hidden_BCF=rows.target_hidden_BSF[:, :anchor],
            positions_BT=torch.arange(anchor + 4)[None],
        )
        for slot in range(1, min(4, 24 - anchor)):
            said_V = target_logits_TV[anchor + slot - 1].log_softmax(-1)
            drafted_V = target.logits(hidden_1KD[0, slot]).log_softmax(-1)
            kl = (said_V.exp() * (said_V - drafted_V)).sum()
            total += math.exp(-(slot - 1) / 2.0) * kl.item()
    assert sums.numerator.item() == pytest.approx(total, rel=1e-4)


def test_distillation_needs_the_final_states(
    target: TinyTarget, drafter_of: Callable[..., Drafter], rows_of: Callable[..., Rows]
) -> None:
    objective = Objective(3, DecayedWeights(2.0), DenseMask(), temperature=1.0)
    with pytest.raises(ValueError, match="target_final_BSD"):
        draft_loss(drafter_of(4), target=target, rows=rows_of(1), objective=objective)
