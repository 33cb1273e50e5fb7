"""The figures of an evaluation: what the answers of a drafter say beside the target's own."""

from __future__ import annotations

import math
from dataclasses import asdict
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from train.acceptance import Acceptance, tokens_per_second

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from train.measure import Measured, Meter


def report_plain(meter: Meter, plain: Measured) -> dict[str, Any]:
    """Return what the target alone gives."""
    limit = meter.terms.max_new_tokens
    return {
        "num_prompts": len(plain.answers),
        "num_tokens": sum(len(one.tokens) for one in plain.answers),
        "num_looping": sum(map(meter.is_looping, plain.answers)),
        "num_shorter": sum(len(one.tokens) < limit for one in plain.answers),
        "tokens_per_second": tokens_per_second(plain.timed),
    }


def report_strategy(
    meter: Meter, measured: Measured, plain: Measured, *, block_size: int
) -> dict[str, Any]:
    """Return what a drafter gives in one way of proposing.

    Acceptance is given over all prompts, and over looping answers and the others apart: text that
    repeats itself is easy to draft, and nobody wants it.
    """
    looping = [meter.is_looping(one) for one in measured.answers]
    groups = {
        "all": measured.answers,
        "not_looping": [a for a, loops in zip(measured.answers, looping, strict=True) if not loops],
        "looping": [a for a, loops in zip(measured.answers, looping, strict=True) if loops],
    }
    acceptance = {
        name: asdict(Acceptance.of(group, block_size=block_size)) for name, group in groups.items()
    }
    speed, plain_speed = tokens_per_second(measured.timed), tokens_per_second(plain.timed)
    return {
        "acceptance": acceptance,
        "acceptance_rate": (acceptance["all"]["pooled"] - 1) / (block_size - 1),
        "lossless": _losslessness(meter, measured, plain),
        "tokens_per_second": speed,
        "speed_up": speed / plain_speed,
        "acceptance_length_by_prompt": [one.acceptance_length for one in measured.answers],
    }


def _losslessness(meter: Meter, measured: Measured, plain: Measured) -> dict[str, Any] | None:
    """Compare with the target's own answers; None where those are random."""
    if meter.terms.temperature > 0:
        return None
    divergences = meter.divergences(measured, plain)
    return {
        "num_equal": len(plain.answers) - len(divergences),
        "num_prompts": len(plain.answers),
        "divergences": divergences,
    }


def spread(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how runs that differ in their seed differ in the mean acceptance length."""
    means = [one["acceptance"]["all"]["mean"] for one in reports]
    return {
        "mean": fmean(means),
        "standard_deviation": stdev(means) if len(means) > 1 else math.nan,
        "lowest": min(means),
        "highest": max(means),
    }
