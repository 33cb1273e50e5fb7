"""The learning rate as a pure function of the optimizer step.

Source: DFlash, arXiv 2602.06036 v2, for warm-up and cosine; MiniCPM, arXiv 2404.06395, for a stable
part before the decay.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train.train_section import TrainSettings


def learning_rate(step: int, *, num_steps: int, settings: TrainSettings) -> float:
    """Return the learning rate of an optimizer step.

    Args:
        step: Optimizer step about to be taken, from 0.
        num_steps: Optimizer steps of the whole run.
        settings: The run's; fractions become whole steps here.
    """
    num_warmup_steps = round(settings.warmup_fraction * num_steps)
    num_decay_steps = num_steps - num_warmup_steps
    if settings.schedule == "wsd":
        num_decay_steps = min(round(settings.decay_fraction * num_steps), num_decay_steps)
    share = warmup_stable_cosine(
        step,
        num_steps=num_steps,
        num_warmup_steps=num_warmup_steps,
        num_decay_steps=num_decay_steps,
        final_fraction=settings.final_lr_fraction,
    )
    return settings.peak_lr * share


def warmup_stable_cosine(
    step: int,
    *,
    num_steps: int,
    num_warmup_steps: int,
    num_decay_steps: int,
    final_fraction: float = 0.0,
) -> float:
    """Return the share of the peak learning rate: linear warm-up, the peak, then half a cosine.

    Without stable steps between warm-up and decay it is the plain cosine schedule. Nothing is
    remembered between calls, so a resumed run needs only its step.

    Args:
        step: Optimizer step about to be taken, from 0. Beyond the end the final share holds.
        num_steps: Optimizer steps of the whole run.
        num_warmup_steps: Steps of the linear rise; the step after them has the peak.
        num_decay_steps: Steps of the cosine at the end of the run.
        final_fraction: Share of the peak that is left at the end, from 0 to 1.

    Returns:
        A factor in [0, 1], never 0 during warm-up: a step with rate 0 would teach nothing.

    Raises:
        ValueError: The run is shorter than its warm-up and decay, or empty.
    """
    fits = min(num_warmup_steps, num_decay_steps) >= 0
    if num_steps < 1 or not fits or num_warmup_steps + num_decay_steps > num_steps:
        raise ValueError(
            f"warm-up of {num_warmup_steps} steps and decay of {num_decay_steps} steps do not fit"
            f" into a run of {num_steps}"
        )
    if step < num_warmup_steps:
        return (step + 1) / (num_warmup_steps + 1)
    num_stable_steps = num_steps - num_decay_steps
    progress = min(max(0, step - num_stable_steps) / max(1, num_decay_steps), 1.0)
    return final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + math.cos(math.pi * progress))
