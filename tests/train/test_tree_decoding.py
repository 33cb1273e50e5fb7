"""Tree verification, and several texts side by side, against what one text alone gives."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.train.conftest import TinyTarget, tiny_config
from tests.train.decoding import decode
from train.branches import Branches
from train.decode import Decoding, Limits
from train.draft_tree import DraftTree, best_tree, chain
from train.drafter import Drafter
from train.drafting import Alone, Chain, Tree
from train.reader import Reader
from train.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from train.drafting import Strategy

PROMPTS = [[3, 14, 15, 9, 26], [7], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5]]
LIMITS = Limits(max_new_tokens=30)


class NoisyOracle(Drafter):
    """Knows each text, and is unsure of it in a way that depends on the position alone.

    Args:
        target: Its head maps a row of its own weights to that row's token.
        texts: Prompts with their continuations; a row is known by the position of its block.
        noise: How unsure; 0 is always right.
    """

    def __init__(self, target: TinyTarget, texts: Sequence[Sequence[int]], noise: float) -> None:
        super().__init__(tiny_config(target, block_size=6))
        head_VD: Tensor = target.model.lm_head.weight
        generator = torch.Generator().manual_seed(3)
        self.says = [
            head_VD[list(text) + [0] * 8]
            + noise * torch.randn(len(text) + 8, head_VD.shape[1], generator=generator)
            for text in texts
        ]

    def forward(self, noise_BQD: Tensor, **inputs: Any) -> Tensor:
        positions_BT, num_slots = inputs["positions_BT"], noise_BQD.shape[1]
        inputs["cache"].commit(positions_BT.shape[1] - num_slots)
        slots_BQ = positions_BT[:, -num_slots:]
        return torch.stack([says[slots] for says, slots in zip(self.says, slots_BQ, strict=True)])


@pytest.fixture(scope="module")
def plain(target: TinyTarget) -> list[Decoding]:
    return [decode(target, [p], strategy=Alone(), limits=LIMITS)[0] for p in PROMPTS]


@pytest.fixture(scope="module")
def texts(plain: list[Decoding]) -> list[list[int]]:
    return [[*prompt, *one.tokens] for prompt, one in zip(PROMPTS, plain, strict=True)]


def tokens_of(decodings: Sequence[Decoding]) -> list[tuple[int, ...]]:
    return [one.tokens for one in decodings]


def test_texts_side_by_side_are_as_alone(target: TinyTarget, plain: list[Decoding]) -> None:
    together = decode(target, PROMPTS, strategy=Alone(), limits=LIMITS)
    assert tokens_of(together) == tokens_of(plain)


@pytest.mark.parametrize("budget", [None, 5, 70])
def test_side_by_side_with_a_drafter_is_as_alone(
    target: TinyTarget,
    drafter_of: Callable[..., Drafter],
    plain: list[Decoding],
    budget: int | None,
) -> None:
    """The drafter's attention is real here: its rows have contexts of different lengths."""
    drafter = drafter_of(4)
    strategy: Strategy = Chain(drafter) if budget is None else Tree(drafter, budget)
    alone = [decode(target, [p], strategy=strategy, limits=LIMITS)[0] for p in PROMPTS]
    together = decode(target, PROMPTS, strategy=strategy, limits=LIMITS)
    assert tokens_of(together) == tokens_of(alone) == tokens_of(plain)
    assert [one.rounds for one in together] == [one.rounds for one in alone]
    assert any(r.num_accepted for one in together for r in one.rounds)


@pytest.mark.parametrize("noise", [0.5, 0.8, 1.2])
@pytest.mark.parametrize("budget", [5, 16, 48])
def test_a_tree_accepts_at_least_what_its_chain_does(
    target: TinyTarget, texts: list[list[int]], noise: float, budget: int
) -> None:
    drafter = NoisyOracle(target, texts, noise)
    chained = decode(target, PROMPTS, strategy=Chain(drafter), limits=LIMITS)
    treed = decode(target, PROMPTS, strategy=Tree(drafter, budget), limits=LIMITS)
    assert tokens_of(treed) == tokens_of(chained)
    num_whole = 0
    for row, (prompt, one) in enumerate(zip(PROMPTS, treed, strict=True)):
        start = len(prompt)
        for outcome in one.rounds:
            slots = target.logits(drafter.says[row][start + 1 : start + 6]).log_softmax(dim=-1)
            top = slots.topk(budget, dim=-1)
            tree = best_tree(
                0, scores=top.values.tolist(), tokens=top.indices.tolist(), budget=budget
            )
            best = top.indices[:, 0].tolist()
            if holds_chain(tree, best):
                num_whole += 1
                rest = texts[row][start + 1 : start + 6]
                agreed = [a == b for a, b in zip(best, rest, strict=False)]
                assert outcome.num_accepted >= (
                    agreed.index(False) if not all(agreed) else len(rest)
                )
            start += outcome.num_emitted
    assert num_whole > 0
    # With no more nodes than the chain has, breadth costs depth; that may lose in the mean.
    assert budget == 5 or mean_length(treed) >= mean_length(chained)


def holds_chain(tree: DraftTree, tokens: list[int]) -> bool:
    """Whether the drafts, one after the other, are a path from the root."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return tuple(tokens) in paths


def mean_length(decodings: Sequence[Decoding]) -> float:
    rounds = [r for one in decodings for r in one.rounds]
    return sum(r.num_emitted for r in rounds) / len(rounds)


def test_a_sure_drafters_tree_is_the_chain(target: TinyTarget, texts: list[list[int]]) -> None:
    """Where all trees are the chain of first ranks, tree decoding is chain decoding."""
    drafter = NoisyOracle(target, texts, 0.0)
    chained = decode(target, PROMPTS, strategy=Chain(drafter), limits=LIMITS)
    treed = decode(target, PROMPTS, strategy=Tree(drafter, budget=5), limits=LIMITS)
    assert [(one.tokens, one.rounds) for one in treed] == [
        (one.tokens, one.rounds) for one in chained
    ]
    assert mean_length(treed) > 5


@pytest.mark.parametrize("budget", [None, 20])
def test_stop_tokens_end_rows_at_different_times(
    target: TinyTarget, texts: list[list[int]], plain: list[Decoding], budget: int | None
) -> None:
    stops = {plain[0].tokens[7], plain[1].tokens[12]}
    limits = Limits(max_new_tokens=30, stop_ids=stops)
    wanted = decode(target, PROMPTS, strategy=Alone(), limits=limits)
    assert len({len(one.tokens) for one in wanted}) > 1
    drafter = NoisyOracle(target, texts, 0.6)
    strategy: Strategy = Chain(drafter) if budget is None else Tree(drafter, budget)
    found = decode(target, PROMPTS, strategy=strategy, limits=limits)
    assert tokens_of(found) == tokens_of(wanted)


def test_compacted_cache_is_that_of_reading_again(target: TinyTarget) -> None:
    """After trees of which a scattered path is kept, keys and values are those of the text."""
    generator = torch.Generator().manual_seed(0)
    reader = Reader(target, PROMPTS, room=60)
    reader.read_prompts()
    kept = [list(prompt) for prompt in PROMPTS]
    parents = [0, 0, 0, 1, 2, 4, 4, 6]
    depths = [0, 1, 1, 2, 2, 3, 3, 4]
    branches = Branches.of(torch.tensor([parents] * 3), torch.tensor([depths] * 3), max_depth=4)
    for paths in ([[0, 2, 4, 6, 7], [0, 1], [0]], [[0, 1, 3], [], [0, 2, 4, 5]]):
        ids_BM = torch.randint(0, 60, (3, 8), generator=generator)
        states = reader.read(ids_BM, branches=branches)
        unseen = reader.keep(paths, tapped_BMF=states.tapped_BTF)
        for row, path in enumerate(paths):
            kept[row] += ids_BM[row, path].tolist()
            again = target.states(torch.tensor([kept[row]])).tapped_BTF[0]
            torch.testing.assert_close(
                unseen.states_BPF[row, : len(path)],
                again[len(kept[row]) - len(path) :],
                atol=1e-4,
                rtol=1e-4,
            )
    assert reader.starts == [len(text) for text in kept]
    for row, text in enumerate(kept):
        fresh = Reader(target, [text], room=1)
        fresh.read_prompts()
        for layer in range(6):
            for moved, wanted in zip(
                reader.cache.layer(layer), fresh.cache.layer(layer), strict=True
            ):
                torch.testing.assert_close(
                    moved[row, :, : len(text)], wanted[0, :, : len(text)], atol=1e-4, rtol=1e-4
                )


def tiny_vocabulary(size: int) -> TinyTarget:
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.5,
        tie_word_embeddings=False,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).train(mode=False).requires_grad_(requires_grad=False)
    return TinyTarget(model, layer_ids=(0, 1))


@pytest.mark.parametrize("kind", ["alone", "chain", "tree"])
def test_sampled_texts_have_the_targets_own_distribution(kind: str) -> None:
    size, num_new, num_texts, temperature = 4, 3, 4000, 0.8
    target = tiny_vocabulary(size)
    torch.manual_seed(1)
    drafter = Drafter(tiny_config(target, block_size=3, mask_token_id=size - 1))
    strategies: dict[str, Strategy] = {
        "alone": Alone(),
        "chain": Chain(drafter),
        "tree": Tree(drafter, 5),
    }
    prompt = [1, 2]
    found = decode(
        target,
        [prompt] * num_texts,
        strategy=strategies[kind],
        limits=Limits(num_new),
        sampler=Sampler(temperature, torch.Generator().manual_seed(2)),
    )
    counts = dict.fromkeys(itertools.product(range(size), repeat=num_new), 0)
    for one in found:
        counts[one.tokens] += 1
    ids = torch.tensor([[*prompt, *text] for text in counts])
    chances = (target.model(ids).logits / temperature).softmax(dim=-1)[:, 1:-1]
    exact = chances.gather(2, ids[:, 2:, None])[..., 0].prod(dim=1).double() * num_texts
    observed = torch.tensor(list(counts.values())).double()
    is_rare = exact < 5
    cells = torch.cat((exact[~is_rare], exact[is_rare].sum()[None]))
    seen = torch.cat((observed[~is_rare], observed[is_rare].sum()[None]))
    assert len(cells) > 20
    chi_square = ((seen - cells) ** 2 / cells).sum().item()
    # Mean and standard deviation of the chi-square distribution; three of them above is 1 in 500.
    freedom = len(cells) - 1
    assert chi_square < freedom + 3 * (2 * freedom) ** 0.5
    if kind != "alone":
        assert any(r.num_accepted for one in found for r in one.rounds)


def test_a_chain_is_a_tree() -> None:
    tree = chain([4, 5, 6])
    assert tree.walk([5, 6, 7], stop_ids=()).emitted == [5, 6, 7]
