from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from tests.train.conftest import TinyTarget, tiny_config
from tests.train.decoding import decode_blocks, decode_plain
from train.anchors import Anchors, block_inputs
from train.attention import DenseMask
from train.decode import Decoding
from train.divergence import first_divergence
from train.drafter import ContextCache, Drafter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from train.objective import Rows

PROMPTS = [[3, 14, 15, 9, 26], [7], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5]]
NO_STOPS: tuple[int, ...] = ()


class OracleDrafter(Drafter):
    """Drafts a given continuation, right or wrong, whatever it is shown.

    Args:
        target: Its head maps a row of its own weights to that row's token.
        block_size: Tokens per block.
        text: Prompt and continuation; slots beyond its end say token 0.
        wrong: Indices into `text` where it says something else.
    """

    def __init__(
        self, target: TinyTarget, block_size: int, text: Sequence[int], wrong: Sequence[int] = ()
    ) -> None:
        super().__init__(tiny_config(target, block_size=block_size))
        self.head: Tensor = target.model.lm_head.weight
        self.says = [(t + 1) % 61 if i in wrong else t for i, t in enumerate(text)]
        self.asked: list[list[int]] = []

    def forward(self, noise_BQD: Tensor, **inputs: Any) -> Tensor:
        positions = inputs["positions_BT"][0].tolist()
        self.asked.append(positions)
        slots = positions[-noise_BQD.shape[1] :]
        inputs["cache"].commit(len(positions) - len(slots))
        tokens = [self.says[slot] if slot < len(self.says) else 0 for slot in slots]
        return self.head[tokens][None]


@pytest.fixture(scope="module")
def texts(target: TinyTarget) -> list[tuple[int, ...]]:
    """What the target says after each prompt."""
    return [
        decode_plain(target, prompt, max_new_tokens=60, stop_ids=NO_STOPS).tokens
        for prompt in PROMPTS
    ]


@pytest.mark.parametrize("which", range(len(PROMPTS)))
def test_plain_decoding_says_the_most_likely_tokens(
    target: TinyTarget, texts: list[tuple[int, ...]], which: int
) -> None:
    ids = torch.tensor([PROMPTS[which]])
    with torch.no_grad():
        for _ in range(20):
            next_id = target.model(ids).logits[:, -1:].argmax(dim=-1)
            ids = torch.cat((ids, next_id), dim=1)
    assert list(texts[which][:20]) == ids[0, len(PROMPTS[which]) :].tolist()
    assert len(set(texts[which])) > 15, "the tiny target repeats itself: a poor test"


@pytest.mark.parametrize(("which", "block_size"), [(0, 2), (1, 5), (2, 16)])
def test_block_decoding_gives_the_plain_tokens(
    target: TinyTarget,
    drafter_of: Callable[..., Drafter],
    texts: list[tuple[int, ...]],
    which: int,
    block_size: int,
) -> None:
    decoding = decode_blocks(
        target, drafter_of(block_size), PROMPTS[which], max_new_tokens=60, stop_ids=NO_STOPS
    )
    assert decoding.tokens == texts[which]
    assert decoding.seconds > 0
    # A random drafter is right about one time in 61.
    assert 1.0 <= decoding.acceptance_length < 1.3


@pytest.mark.parametrize("block_size", [2, 4, 8])
def test_an_oracle_has_whole_blocks_accepted(
    target: TinyTarget, texts: list[tuple[int, ...]], block_size: int
) -> None:
    prompt = PROMPTS[0]
    text = [*prompt, *texts[0]]
    drafter = OracleDrafter(target, block_size, text)
    decoding = decode_blocks(target, drafter, prompt, max_new_tokens=41, stop_ids=NO_STOPS)
    assert list(decoding.tokens) == text[len(prompt) : len(prompt) + 41]
    assert decoding.acceptance_length == block_size
    assert {one.num_accepted for one in decoding.rounds} == {block_size - 1}
    # Each round shows the drafter what was committed since the last one, then the block.
    num_prompt = len(prompt)
    first = 0
    for index, positions in enumerate(drafter.asked):
        start = num_prompt + index * block_size
        assert positions == list(range(first, start + block_size))
        first = start


def test_what_follows_a_wrong_draft_is_not_accepted(
    target: TinyTarget, texts: list[tuple[int, ...]]
) -> None:
    prompt = PROMPTS[0]
    text = [*prompt, *texts[0]]
    num_prompt = len(prompt)
    # Blocks start at the anchor: new token 0, then where the last round ended.
    drafter = OracleDrafter(target, 4, text, wrong=[num_prompt + 2, num_prompt + 3, num_prompt + 9])
    decoding = decode_blocks(target, drafter, prompt, max_new_tokens=13, stop_ids=NO_STOPS)
    assert list(decoding.tokens) == text[num_prompt : num_prompt + 13]
    # Anchors 0 (wrong at 2), 2 (wrong at 3), 3 (all three right), 7 (wrong at 9), 9.
    assert [one.num_accepted for one in decoding.rounds] == [1, 0, 3, 1, 3]
    assert [one.num_emitted for one in decoding.rounds] == [2, 1, 4, 2, 4]


@pytest.mark.parametrize(
    ("stop_index", "num_emitted"),
    [
        pytest.param(0, [], id="in-the-prompts-own-pass"),
        pytest.param(2, [2], id="among-the-accepted"),
        pytest.param(4, [4], id="the-targets-own-token"),
        pytest.param(6, [4, 2], id="in-a-later-round"),
    ],
)
def test_a_stop_token_ends_the_answer(
    target: TinyTarget,
    texts: list[tuple[int, ...]],
    stop_index: int,
    num_emitted: list[int],
) -> None:
    prompt, tokens = PROMPTS[2], texts[2]
    stop = tokens[stop_index]
    assert tokens.index(stop) == stop_index
    drafter = OracleDrafter(target, 4, [*prompt, *tokens])
    limits: dict[str, Any] = {"max_new_tokens": 40, "stop_ids": {stop, 999}}
    decoding = decode_blocks(target, drafter, prompt, **limits)
    assert decoding.tokens == tokens[: stop_index + 1]
    assert decoding.tokens == decode_plain(target, prompt, **limits).tokens
    assert [one.num_emitted for one in decoding.rounds] == num_emitted
    # Tokens that were accepted beyond the stop do not count.
    assert all(one.num_accepted <= one.num_emitted for one in decoding.rounds)


@pytest.mark.parametrize("max_new_tokens", [1, 2, 5, 6, 9])
def test_answers_end_at_the_limit(
    target: TinyTarget, texts: list[tuple[int, ...]], max_new_tokens: int
) -> None:
    prompt, tokens = PROMPTS[0], texts[0]
    drafter = OracleDrafter(target, 4, [*prompt, *tokens])
    decoding = decode_blocks(
        target, drafter, prompt, max_new_tokens=max_new_tokens, stop_ids=NO_STOPS
    )
    assert decoding.tokens == tokens[:max_new_tokens]
    # The cut is not the drafter's doing, so the last round counts whole.
    assert [one.num_emitted for one in decoding.rounds] == [4] * math.ceil((max_new_tokens - 1) / 4)


def test_without_rounds_there_is_no_acceptance_length() -> None:
    assert math.isnan(Decoding((1,), rounds=(), seconds=0.1).acceptance_length)


def test_divergence_names_the_place_and_the_gap(
    target: TinyTarget, texts: list[tuple[int, ...]]
) -> None:
    prompt, plain = PROMPTS[0], texts[0][:8]
    assert first_divergence(target, prompt, plain=plain, other=plain) is None
    other = [*plain[:5], (plain[5] + 1) % 61, *plain[6:]]
    found = first_divergence(target, prompt, plain=plain, other=other)
    assert found is not None
    logits = target.logits(target.states(torch.tensor([[*prompt, *plain[:5]]])).final_BTD[0, -1])
    assert found.index == 5
    assert found.logit_gap == pytest.approx((logits[plain[5]] - logits[other[5]]).item())
    shorter = first_divergence(target, prompt, plain=plain, other=plain[:3])
    assert shorter is not None
    assert (shorter.index, shorter.logit_gap) == (3, math.inf)


@torch.no_grad()
def test_training_and_cached_decoding_compute_the_same(
    target: TinyTarget, drafter_of: Callable[..., Drafter], rows_of: Callable[..., Rows]
) -> None:
    starts = [3, 7, 8, 20, 36]
    block_size = 6
    drafter, rows = drafter_of(block_size, num_layers=3), rows_of(1, 48)
    anchor_BN = torch.tensor([starts])
    anchors = Anchors(anchor_BN, torch.zeros_like(anchor_BN), torch.ones_like(anchor_BN).bool())
    inputs = block_inputs(
        rows.ids_BS,
        loss_mask_BS=rows.loss_mask_BS,
        anchors=anchors,
        block_size=block_size,
        mask_token_id=drafter.config.mask_token_id,
    )
    noise = target.embed(inputs.block_ids_BNK)
    trained = drafter(
        noise.flatten(1, 2),
        target_hidden_BCF=rows.target_hidden_BSF,
        positions_BT=inputs.positions_BT,
        attend=DenseMask()(anchors, num_context=48, block_size=block_size, num_heads=4),
    ).unflatten(1, (-1, block_size))
    cache = ContextCache(drafter.config, max_tokens=64, like=noise)
    for block, start in enumerate(starts):
        first = cache.num_tokens
        decoded = drafter(
            noise[:, block],
            target_hidden_BCF=rows.target_hidden_BSF[:, first:start],
            positions_BT=torch.arange(first, start + block_size)[None],
            cache=cache,
        )
        assert cache.num_tokens == start
        torch.testing.assert_close(decoded, trained[:, block], atol=5e-6, rtol=1e-5)
