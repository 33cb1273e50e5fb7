"""Where a decoding stops being the target's own.

Shape suffixes: the leading 1 is the only sequence, T tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.frozen_target import FrozenTarget


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
        plain: New tokens of the target alone.
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
