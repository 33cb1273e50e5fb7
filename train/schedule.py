"""The learning rate as a pure function of the optimizer step."""

from __future__ import annotations

import math


def warmup_cosine(
    step: int, *, num_steps: int, num_warmup_steps: int, final_fraction: float = 0.0
) -> float:
    """Return the share of the peak learning rate: linear warm-up, then half a cosine.

    Nothing is remembered between calls, so a resumed run needs only its step.

    Args:
        step: Optimizer step about to be taken, from 0. Beyond the end the final share holds.
        num_steps: Optimizer steps of the whole run.
        num_warmup_steps: Steps of the linear rise; the step after them has the peak.
        final_fraction: Share of the peak that is left at the end, from 0 to 1.

    Returns:
        A factor in [0, 1], never 0 during warm-up: a step with rate 0 would teach nothing.

    Raises:
        ValueError: The run is shorter than its warm-up, or empty.
    """
    if num_steps < 1 or not 0 <= num_warmup_steps <= num_steps:
        raise ValueError(
            f"warm-up of {num_warmup_steps} steps does not fit into a run of {num_steps}"
        )
    if step < num_warmup_steps:
        return (step + 1) / (num_warmup_steps + 1)
    progress = min(1.0, (step - num_warmup_steps) / max(1, num_steps - num_warmup_steps))
    return final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + math.cos(math.pi * progress))
