"""How far a run goes, and where in its data each step is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.batches import epoch_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.config import TrainConfig
    from train.data import Sample


@dataclass(frozen=True)
class Origin:
    """Where the order of the data began: at the start, or where its data was changed.

    Attributes:
        step: Optimizer steps taken before it.
        epoch: Epoch that begins there.
    """

    step: int = 0
    epoch: int = 0


@dataclass(frozen=True)
class Plan:
    """The optimizer steps of a run.

    Attributes:
        steps_per_epoch: Every epoch has as many.
        epochs: Passes over the data, those before the origin included.
        max_steps: Where the run ends although epochs are left; None ends with the last epoch.
        origin: Where the order of the data began.
    """

    steps_per_epoch: int
    epochs: int
    max_steps: int | None = None
    origin: Origin = Origin()

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole run."""
        num_epochs = max(0, self.epochs - self.origin.epoch)
        num_steps = self.origin.step + num_epochs * self.steps_per_epoch
        return min(num_steps, self.max_steps or num_steps)

    def place(self, step: int) -> tuple[int, int]:
        """Return the epoch of the step after so many, and the steps of that epoch before it."""
        epochs, within = divmod(step - self.origin.step, self.steps_per_epoch)
        return self.origin.epoch + epochs, within


def plan_of(
    samples: Sequence[Sample], config: TrainConfig, *, origin: Origin | None = None
) -> Plan:
    """Count the optimizer steps that a run takes over its data."""
    groups = epoch_batches(
        samples, buckets=config.data.buckets, rows=config.train.micro_batch, order=None
    )
    return Plan(
        steps_per_epoch=math.ceil(sum(1 for _ in groups) / config.train.accumulation),
        epochs=config.train.epochs,
        max_steps=config.train.max_steps,
        origin=origin or Origin(),
    )
