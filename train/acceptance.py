"""How a drafter's proposals fared.

Acceptance length counts the target's own token, so a drafter that is never right has 1.

Source: z-lab's evaluation for the mean over prompts; vLLM's metrics for rounds of all prompts
together and for single positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.decode import Decoding


@dataclass(frozen=True)
class Acceptance:
    """How a drafter's proposals fared over all prompts.

    Attributes:
        pooled: Tokens per verification over the rounds of all prompts together.
        mean: Mean over prompts of each prompt's own tokens per verification.
        standard_error: Of `mean`.
        per_position: Share of rounds in which the first k draft tokens were accepted, k from 1.
        histogram: Rounds by the tokens that they gave, from 1 to a whole block.
        num_prompts: Prompts with at least one round.
        num_rounds: Verifications.
    """

    pooled: float
    mean: float
    standard_error: float
    per_position: list[float]
    histogram: list[int]
    num_prompts: int
    num_rounds: int

    @classmethod
    def of(cls, decodings: Sequence[Decoding], *, block_size: int) -> Acceptance:
        """Count rounds; prompts that were answered by one token have none."""
        drafted = [decoding for decoding in decodings if decoding.rounds]
        rounds = [one for decoding in drafted for one in decoding.rounds]
        lengths = [decoding.acceptance_length for decoding in drafted]
        num_prompts, num_rounds = len(lengths), len(rounds)
        per_position = [
            sum(one.num_accepted >= k for one in rounds) / max(1, num_rounds)
            for k in range(1, block_size)
        ]
        return cls(
            pooled=sum(one.num_emitted for one in rounds) / num_rounds if rounds else math.nan,
            mean=fmean(lengths) if lengths else math.nan,
            standard_error=stdev(lengths) / math.sqrt(num_prompts) if num_prompts > 1 else math.nan,
            per_position=per_position,
            histogram=[
                sum(one.num_emitted == given for one in rounds)
                for given in range(1, block_size + 1)
            ],
            num_prompts=num_prompts,
            num_rounds=num_rounds,
        )


def standard_errors_above(trained: Acceptance, untrained: Acceptance) -> float:
    """Return the difference of the means in standard errors of that difference.

    The two runs share their prompts, which this ignores: it makes the figure smaller, not larger.
    """
    error = math.hypot(trained.standard_error, untrained.standard_error)
    gain = trained.mean - untrained.mean
    if error == 0.0:
        return math.copysign(math.inf, gain) if gain else 0.0
    return gain / error


def tokens_per_second(decodings: Sequence[Decoding]) -> float:
    """Return new tokens per second after the prompts' own passes; nan when none was timed."""
    num_tokens = sum(len(decoding.tokens) - 1 for decoding in decodings)
    seconds = sum(decoding.seconds for decoding in decodings)
    return num_tokens / seconds if num_tokens else math.nan


def is_lossless(decodings: Sequence[Decoding], plain: Sequence[Decoding]) -> bool:
    """Return whether every answer is, token for token, the target's own greedy one."""
    return [one.tokens for one in decodings] == [one.tokens for one in plain]
