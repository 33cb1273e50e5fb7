"""What a training consists of before its first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.optimizer import build_optimizer
from train.windows import num_optimizer_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from train.config import TrainConfig
    from train.data import Sample
    from train.drafter import Drafter
    from train.target import Target


@dataclass(frozen=True)
class Pair:
    """The two models, on one device."""

    target: Target
    drafter: Drafter


@dataclass(frozen=True)
class Course:
    """The parts that the loop moves.

    Attributes:
        config: The run.
        pair: The target, and the drafter that is trained in place.
        samples: What to train on.
        optimizer: Of the drafter's parameters.
        num_steps: Optimizer steps of the whole run.
    """

    config: TrainConfig
    pair: Pair
    samples: Sequence[Sample]
    optimizer: torch.optim.Optimizer
    num_steps: int

    @classmethod
    def of(cls, config: TrainConfig, *, pair: Pair, samples: Sequence[Sample]) -> Course:
        """Make the optimizer, and count the steps."""
        settings = config.train
        optimizer = build_optimizer(
            pair.drafter,
            peak_lr=settings.peak_lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )
        num_steps = num_optimizer_steps(samples, config)
        return cls(config, pair, samples, optimizer, num_steps)
