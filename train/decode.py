"""Greedy decoding with the target alone, or with drafter and target.

Shape suffixes: B = 1 sequence, T tokens, K slots per block, D hidden size, F = tapped layers * D,
V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from train.drafter import Drafter
    from train.frozen_target import FrozenTarget


@dataclass(frozen=True)
class Round:
    """One proposal of the drafter and its verification by the target.

    Attributes:
        num_accepted: Leading draft tokens that the target would have said, up to a stop token.
        num_emitted: Those and the target's own next token, unless a stop token came before it.
    """

    num_accepted: int
    num_emitted: int


@dataclass(frozen=True)
class Decoding:
    """A decoded answer.

    Attributes:
        tokens: New token ids, the stop token included, at most `max_new_tokens`.
        rounds: What each verification gave; empty for plain decoding. The first token comes from
            the prompt's own pass and belongs to no round.
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
    raise NotImplementedError


def decode_blocks(
    target: FrozenTarget,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int],
) -> Decoding:
    """Decode greedily with the drafter proposing a block and the target verifying it at once.

    The tokens are those of `decode_plain`, up to rounding where two logits tie.

    Args:
        target: The target.
        drafter: The drafter, on the target's device.
        prompt_ids: At least one token.
        max_new_tokens: Where to stop at the latest, at least 1.
        stop_ids: Tokens that end the answer.
    """
    raise NotImplementedError
