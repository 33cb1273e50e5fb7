"""Greedy decoding with the target alone, or with drafter and target.

Shape suffixes: the leading 1 is the only sequence, T tokens, C context tokens new to the drafter, K
slots per block, D hidden size, F = tapped layers * D.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from transformers import DynamicCache

from train.drafter import ContextCache

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import Tensor

    from train.drafter import Drafter
    from train.frozen_target import FrozenTarget


@dataclass(frozen=True)
class Round:
    """One proposal of the drafter and its verification by the target.

    Attributes:
        num_accepted: Leading draft tokens that the target would have said, up to a stop token.
        num_emitted: Those, and the target's own next token unless a stop token came before it.
    """

    num_accepted: int
    num_emitted: int


@dataclass(frozen=True)
class Decoding:
    """A decoded answer.

    Attributes:
        tokens: New token ids, the stop token included, at most `max_new_tokens`.
        rounds: What each verification gave, before the cut at `max_new_tokens`; empty for plain
            decoding. The first token comes from the prompt's own pass and belongs to no round.
        seconds: Wall-clock time after the prompt's pass.
    """

    tokens: tuple[int, ...]
    rounds: tuple[Round, ...]
    seconds: float

    @property
    def acceptance_length(self) -> float:
        """Mean tokens per verification, the target's own included; nan without rounds."""
        if not self.rounds:
            return float("nan")
        return sum(one.num_emitted for one in self.rounds) / len(self.rounds)


@dataclass(frozen=True)
class Divergence:
    """Where two greedy decodings of the same prompt part.

    Attributes:
        index: Index of the first new token that differs.
        logit_gap: How much more likely, in logits, the target finds the plain token there when it
            reads the whole prefix at once. About 0 means that rounding decided between two tokens.
    """

    index: int
    logit_gap: float


@torch.no_grad()
def decode_plain(
    target: FrozenTarget,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int],
) -> Decoding:
    """Decode greedily, one token per pass of the target.

    Args:
        target: The target.
        prompt_ids: At least one token.
        max_new_tokens: Where to stop at the latest, at least 1.
        stop_ids: Tokens that end the answer.
    """
    prompt = _Prompt.read(target, prompt_ids)
    tokens = [prompt.next_id]
    begin = time.perf_counter()
    while len(tokens) < max_new_tokens and tokens[-1] not in stop_ids:
        ids_1T = torch.tensor([tokens[-1:]], device=target.device)
        states = target.states(ids_1T, cache=prompt.cache)
        tokens.append(int(_most_likely(target, states.final_BTD).item()))
    return Decoding(tuple(tokens), rounds=(), seconds=time.perf_counter() - begin)


@torch.no_grad()
def decode_blocks(
    target: FrozenTarget,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int],
) -> Decoding:
    """Decode greedily: the drafter proposes a block, the target verifies it in one pass.

    The tokens are those of `decode_plain`, up to rounding where two logits nearly tie.

    Args:
        target: The target.
        drafter: The drafter, on the target's device.
        prompt_ids: At least one token.
        max_new_tokens: Where to stop at the latest, at least 1.
        stop_ids: Tokens that end the answer.
    """
    block_size = drafter.config.block_size
    prompt = _Prompt.read(target, prompt_ids)
    tokens = [prompt.next_id]
    rounds: list[Round] = []
    begin = time.perf_counter()
    proposer = _Proposer(target, drafter, max_tokens=len(prompt_ids) + max_new_tokens + block_size)
    unseen_1CF = prompt.tapped_1TF
    while len(tokens) < max_new_tokens and tokens[-1] not in stop_ids:
        block_1K = proposer.propose(tokens[-1], unseen_1CF=unseen_1CF)
        states = target.states(block_1K, cache=prompt.cache)
        wanted_1K = _most_likely(target, states.final_BTD)
        # The only wait for the device in a round.
        drafted, wanted = torch.cat((block_1K, wanted_1K)).tolist()
        emitted, outcome = _verify(drafted[1:], wanted=wanted, stop_ids=stop_ids)
        tokens += emitted
        rounds.append(outcome)
        # The anchor and the accepted tokens stay; a crop by 0 means "everything" to some versions.
        if num_rejected := block_size - len(emitted):
            prompt.cache.crop(-num_rejected)
        unseen_1CF = states.tapped_BTF[:, : len(emitted)]
    seconds = time.perf_counter() - begin
    return Decoding(tuple(tokens[:max_new_tokens]), rounds=tuple(rounds), seconds=seconds)


@torch.no_grad()
def first_divergence(
    target: FrozenTarget,
    prompt_ids: Sequence[int],
    *,
    plain: Sequence[int],
    other: Sequence[int],
) -> Divergence | None:
    """Find where a decoding stops being the plain one; None when it never does.

    Args:
        target: The target.
        prompt_ids: The prompt of both.
        plain: New tokens of `decode_plain`.
        other: New tokens of the decoding in question, under the same limits.
    """
    if list(plain) == list(other):
        return None
    pairs = list(zip(plain, other, strict=False))
    index = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    if index == len(pairs):
        return Divergence(index, float("inf"))
    ids_1T = torch.tensor([[*prompt_ids, *plain[:index]]], device=target.device)
    logits_V = target.logits(target.states(ids_1T).final_BTD[0, -1]).float()
    gap = logits_V[plain[index]] - logits_V[other[index]]
    return Divergence(index, gap.item())


@dataclass(frozen=True)
class _Prompt:
    """A target that has read the prompt: its cache, the tapped states, the first new token."""

    cache: DynamicCache
    tapped_1TF: Tensor
    next_id: int

    @classmethod
    def read(cls, target: FrozenTarget, prompt_ids: Sequence[int]) -> _Prompt:
        # Made without the target's configuration: a cache of sliding layers cannot be cropped.
        cache = DynamicCache()
        ids_1T = torch.tensor([list(prompt_ids)], device=target.device)
        states = target.states(ids_1T, cache=cache)
        next_id = int(_most_likely(target, states.final_BTD[:, -1:]).item())
        return cls(cache=cache, tapped_1TF=states.tapped_BTF, next_id=next_id)


class _Proposer:
    """A drafter with what it has read of the context so far."""

    def __init__(self, target: FrozenTarget, drafter: Drafter, *, max_tokens: int) -> None:
        self._target = target
        self._drafter = drafter
        config = drafter.config
        masks_1K = torch.full((1, config.block_size), config.mask_token_id, device=target.device)
        self._masks_1K = masks_1K
        self._cache = ContextCache(config, max_tokens=max_tokens, like=target.embed(masks_1K))

    def propose(self, anchor_id: int, *, unseen_1CF: Tensor) -> Tensor:
        """Return the anchor and the tokens drafted after it, [1, K].

        Args:
            anchor_id: The newest token, which the target has not read yet.
            unseen_1CF: Tapped states of the tokens before it since the last call.
        """
        block_1K = self._masks_1K.clone()
        block_1K[0, 0] = anchor_id
        first = self._cache.num_tokens
        end = first + unseen_1CF.shape[1] + block_1K.shape[1]
        hidden_1KD = self._drafter(
            self._target.embed(block_1K),
            target_hidden_BCF=unseen_1CF,
            positions_BT=torch.arange(first, end, device=block_1K.device)[None],
            cache=self._cache,
        )
        block_1K[:, 1:] = _most_likely(self._target, hidden_1KD[:, 1:])
        return block_1K


def _most_likely(target: FrozenTarget, hidden_1TD: Tensor) -> Tensor:
    """Return the most likely token after each state, [1, T]."""
    return target.logits(hidden_1TD).argmax(dim=-1)


def _verify(
    draft: Sequence[int], *, wanted: Sequence[int], stop_ids: Collection[int]
) -> tuple[list[int], Round]:
    """Keep what the target agrees with, and its own token after that, up to a stop token.

    Args:
        draft: The K - 1 tokens after the anchor.
        wanted: What the target says after the anchor and after each of them, K tokens.
        stop_ids: Tokens that end the answer.
    """
    pairs = zip(draft, wanted, strict=False)
    num_accepted = next((i for i, (a, b) in enumerate(pairs) if a != b), len(draft))
    # Accepted tokens are what the target wanted, so its list holds all that is emitted.
    emitted = list(wanted[: num_accepted + 1])
    stop = next((i for i, token in enumerate(emitted) if token in stop_ids), None)
    if stop is not None:
        emitted = emitted[: stop + 1]
    return emitted, Round(min(num_accepted, len(emitted)), num_emitted=len(emitted))
