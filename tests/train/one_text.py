"""Greedy decoding of one prompt, as most tests of decoding want it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from train.decode import Decoding, Limits, decode
from train.drafting import Alone, Chain

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from train.drafter import Drafter
    from train.frozen_target import FrozenTarget


def decode_plain(
    target: FrozenTarget,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int],
) -> Decoding:
    """Decode with the target alone."""
    limits = Limits(max_new_tokens, stop_ids)
    return decode(target, [prompt_ids], strategy=Alone(), limits=limits)[0]


def decode_blocks(
    target: FrozenTarget,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int],
) -> Decoding:
    """Decode with a chain of the drafter."""
    limits = Limits(max_new_tokens, stop_ids)
    return decode(target, [prompt_ids], strategy=Chain(drafter), limits=limits)[0]
