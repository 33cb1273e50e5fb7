"""How far a run goes, and where in its data each step is; pure numbers."""

from __future__ import annotations

from dataclasses import dataclass


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
