"""What a training consists of before its first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from train.optimizer import build_optimizer
from train.windows import num_optimizer_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.config import TrainConfig
    from train.data import Sample
    from train.drafter import Drafter
    from train.optimizer import Optimizer
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
        average: Moving average of the drafter's weights; None when `train.ema_decay` is 0.
    """

    config: TrainConfig
    pair: Pair
    samples: Sequence[Sample]
    optimizer: Optimizer
    num_steps: int
    average: AveragedModel | None = None

    @property
    def trained_drafter(self) -> Drafter:
        """What is measured and saved: the average where one is kept, else the drafter itself."""
        return self.pair.drafter if self.average is None else cast("Drafter", self.average.module)

    @classmethod
    def of(cls, config: TrainConfig, *, pair: Pair, samples: Sequence[Sample]) -> Course:
        """Make the optimizer, and count the steps."""
        settings = config.train
        optimizer = build_optimizer(
            pair.drafter,
            kind=settings.optimizer,
            peak_lr=settings.peak_lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )
        average = None
        if settings.ema_decay:
            # Its first update copies the weights, so those before the first step do not count.
            follow: Any = get_ema_multi_avg_fn
            average = AveragedModel(pair.drafter, multi_avg_fn=follow(settings.ema_decay))
        num_steps = num_optimizer_steps(samples, config)
        return cls(config, pair, samples, optimizer, num_steps, average)
