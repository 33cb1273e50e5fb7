"""Decoding to the end, of a group of prompts or of one, as most tests of decoding want it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from train.decode import Decoder, Decoding, Limits
from train.drafting import Alone, Chain

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from train.drafter import Drafter
    from train.drafting import Strategy
    from train.frozen_target import FrozenTarget
    from train.sampling import Sampler


def decode(
    target: FrozenTarget,
    prompts: Sequence[Sequence[int]],
    *,
    strategy: Strategy,
    limits: Limits,
    sampler: Sampler | None = None,
) -> list[Decoding]:
    """Decode a group of prompts to their ends, side by side; see `Decoder`."""
    decoder = Decoder(target, prompts, strategy=strategy, limits=limits, sampler=sampler)
    while not decoder.is_done:
        decoder.step()
    return decoder.decodings()


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
