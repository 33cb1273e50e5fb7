from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd import backward

from tests.train.conftest import keys
from train.attention import DenseMask
from train.decode import decode_blocks, decode_plain
from train.objective import Objective, Rows, draft_loss
from train.optimizer import build_optimizer, set_learning_rate
from train.schedule import warmup_cosine

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
    objective = Objective(num_anchors=16, gamma=2.0, attention=DenseMask())
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
        share = warmup_cosine(step, num_steps=NUM_STEPS, num_warmup_steps=10)
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
