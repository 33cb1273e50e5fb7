"""Decoding with the target alone, or with drafter and target; lossless either way.

Shape suffixes: B rows (texts), M nodes that the target reads at once, D hidden size.

Source: DFlash, arXiv 2602.06036 v2, for drafting a block and verifying it in one pass.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from train.draft_tree import Round  # noqa: TC001  read when `Decoding` is decoded from a file
from train.reader import Reader
from train.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from train.draft_tree import DraftTree
    from train.drafting import Strategy
    from train.frozen_target import FrozenTarget


@dataclass(frozen=True)
class Limits:
    """Where an answer ends.

    Attributes:
        max_new_tokens: At the latest after so many, at least 1.
        stop_ids: Tokens that end it.
    """

    max_new_tokens: int
    stop_ids: Collection[int] = ()


@dataclass(frozen=True)
class Decoding:
    """A decoded answer.

    Attributes:
        tokens: New token ids, the stop token included, at most `max_new_tokens`.
        rounds: What each verification gave, before the cut at `max_new_tokens`; of the target alone
            each gave one token. The first token comes from the prompt's own pass and belongs to
            none.
        seconds: Its share of the wall-clock time after the prompts' pass.
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


@dataclass
class _Text:
    """An answer in the making."""

    limits: Limits
    tokens: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return bool(self.tokens) and (
            len(self.tokens) >= self.limits.max_new_tokens
            or self.tokens[-1] in self.limits.stop_ids
        )

    @property
    def share_done(self) -> float:
        return 1.0 if self.is_done else len(self.tokens) / self.limits.max_new_tokens

    def follow(self, tree: DraftTree, wanted: list[int]) -> tuple[list[int], list[int]]:
        """Take what the target wants; return the nodes that it has read, and the new tokens."""
        if self.is_done:
            return [], []
        walk = tree.walk(wanted, stop_ids=self.limits.stop_ids)
        self.rounds.append(walk.outcome)
        room = self.limits.max_new_tokens - len(self.tokens)
        self.tokens += walk.emitted[:room]
        return walk.nodes, walk.emitted[:room]


class Decoder:
    """Decodes a group of prompts round by round: `step` until `is_done`, then take the `decodings`.

    Greedy answers are those of the target alone, up to rounding where two logits nearly tie.

    Args:
        target: The target.
        prompts: Token ids, at least one each.
        strategy: What is proposed.
        limits: Where answers end.
        sampler: How the target chooses.
    """

    def __init__(
        self,
        target: FrozenTarget,
        prompts: Sequence[Sequence[int]],
        *,
        strategy: Strategy,
        limits: Limits,
        sampler: Sampler | None = None,
    ) -> None:
        self._target = target
        self._sampler = sampler or Sampler()
        self._texts = [_Text(limits) for _ in prompts]
        # A round may emit beyond the limit as many tokens as it reads.
        room = limits.max_new_tokens + 2 * strategy.num_nodes
        self._reader = Reader(target, prompts, room=room)
        final_BD, self._unseen = self._reader.read_prompts()
        first_B = self._sampler.choose(target.logits(final_BD)).tolist()
        for text, token in zip(self._texts, first_B, strict=True):
            text.tokens.append(token)
        self._begin = time.perf_counter()
        self._proposer = strategy.begin(target, num_texts=len(prompts))

    @property
    def is_done(self) -> bool:
        """Whether all answers have ended."""
        return all(text.is_done for text in self._texts)

    @property
    def num_done(self) -> int:
        """How many answers have ended."""
        return sum(text.is_done for text in self._texts)

    @property
    def share_done(self) -> float:
        """Share of the tokens decoded that there are at most; an answer that has ended is whole."""
        return sum(text.share_done for text in self._texts) / len(self._texts)

    @torch.no_grad()
    def step(self) -> list[list[int]]:
        """Propose and verify once; return the new tokens of each text."""
        anchors = [text.tokens[-1:] for text in self._texts]
        proposal = self._proposer.propose(
            torch.tensor(anchors, device=self._target.device),
            starts_B1=self._reader.next_positions,
            unseen=self._unseen,
        )
        states = self._reader.read(proposal.ids_BM, branches=proposal.branches)
        wanted_BM = self._sampler.choose(self._target.logits(states.final_BTD))
        # The only wait for the device in a round of a chain.
        ids, wanted = torch.stack((proposal.ids_BM, wanted_BM)).tolist()
        texts = zip(self._texts, proposal.trees(ids), wanted, strict=True)
        followed = [text.follow(tree, tokens) for text, tree, tokens in texts]
        self._unseen = self._reader.keep(
            [nodes for nodes, _ in followed], tapped_BMF=states.tapped_BTF
        )
        return [tokens for _, tokens in followed]

    def decodings(self) -> list[Decoding]:
        """Return the answers as they are."""
        seconds = (time.perf_counter() - self._begin) / len(self._texts)
        return [Decoding(tuple(text.tokens), tuple(text.rounds), seconds) for text in self._texts]
