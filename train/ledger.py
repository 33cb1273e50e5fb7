"""What a training reports: sums over a few steps, and the totals at the end."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from train.loss import LossSums

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch
    from torch import Tensor


class NotFiniteError(Exception):
    """A gradient is nan or infinite, and with it all weights: the steps that follow are lost."""


@dataclass(frozen=True)
class StepReport:
    """What a few optimizer steps gave.

    Args:
        step: Optimizer steps taken so far.
        num_steps: Optimizer steps of the whole run.
        epoch: Pass over the data, from 0.
        sums: Loss and accuracies, summed over the steps since the last report.
        learning_rate: Of the last of these steps.
        grad_norm: Of the last of these steps, before clipping.
        num_tokens: Context tokens without padding since the last report.
        seconds: Wall-clock time since the last report.
        seconds_left: Wall-clock time that the other steps will take at the pace so far.
    """

    step: int
    num_steps: int
    epoch: int
    sums: LossSums
    learning_rate: float
    grad_norm: float
    num_tokens: int
    seconds: float
    seconds_left: float

    def record(self) -> dict[str, Any]:
        """Return the line of the metrics file."""
        return {
            "kind": "step",
            "step": self.step,
            "epoch": self.epoch,
            "loss": self.sums.loss,
            "accuracy": self.sums.accuracy,
            "estimated_acceptance_length": self.sums.acceptance_length,
            "learning_rate": self.learning_rate,
            "grad_norm": self.grad_norm,
            "tokens_per_second": self.num_tokens / self.seconds,
            "num_labels": int(self.sums.num_labels_K.sum()),
        }


@dataclass(frozen=True)
class Outcome:
    """What a training came to.

    Attributes:
        steps: Optimizer steps taken; fewer than planned when stopped.
        num_steps: Optimizer steps planned.
        num_tokens: Context tokens without padding, over all epochs.
        seconds: Wall-clock time of the steps.
    """

    steps: int
    num_steps: int
    num_tokens: int
    seconds: float

    def summary(self) -> dict[str, Any]:
        """Return the training's part of a run's summary."""
        return {**asdict(self), "tokens_per_second": self.num_tokens / self.seconds}


@dataclass(frozen=True)
class Step:
    """What one optimizer step gave.

    Attributes:
        epoch: Pass over the data, from 0.
        sums: Loss and accuracies over its window.
        num_tokens: Context tokens of the window without padding.
        learning_rate: That it was taken with.
        grad_norm: Before clipping, scalar on the device.
    """

    epoch: int
    sums: LossSums
    num_tokens: int
    learning_rate: float
    grad_norm: Tensor


class Ledger:
    """Sums up the steps between two reports, so that the device is waited for once a report.

    Args:
        num_steps: Optimizer steps of the whole run.
        every_steps: Steps that a report sums up.
        report: Given each report.
    """

    def __init__(
        self, num_steps: int, *, every_steps: int, report: Callable[[StepReport], None]
    ) -> None:
        self._num_steps = num_steps
        self._every_steps = every_steps
        self._report = report
        self._started = self._last_report = time.monotonic()
        self._first_step = self._steps = 0
        self._sums: LossSums | None = None
        self._num_tokens = 0
        self._reported_tokens = 0
        self._earlier_seconds = 0.0

    def start(self) -> None:
        """Start the clock: what came before the first step is not the training's time."""
        self._started = self._last_report = time.monotonic()

    def add(self, step: Step) -> None:
        """Count one step, and report if it is time or the run's last.

        Raises:
            NotFiniteError: The gradient that is reported is not finite. Looking at each step's
                would wait for the device each time; and none is finite again after the first.
        """
        self._sums = step.sums if self._sums is None else self._sums + step.sums
        self._steps += 1
        self._num_tokens += step.num_tokens
        if self._steps < self._num_steps and self._steps % self._every_steps:
            return
        grad_norm = float(step.grad_norm)  # waits for the device, so the time below is the work's
        now = time.monotonic()
        seconds_per_step = (now - self._started) / (self._steps - self._first_step)
        self._report(
            StepReport(
                step=self._steps,
                num_steps=self._num_steps,
                epoch=step.epoch,
                sums=self._sums,
                learning_rate=step.learning_rate,
                grad_norm=grad_norm,
                num_tokens=self._num_tokens,
                seconds=now - self._last_report,
                seconds_left=seconds_per_step * (self._num_steps - self._steps),
            )
        )
        self._reported_tokens += self._num_tokens
        self._last_report, self._sums, self._num_tokens = now, None, 0
        if not math.isfinite(grad_norm):
            raise NotFiniteError(
                f"step {self._steps}: found a gradient norm of {grad_norm} and a loss of"
                f" {step.sums.loss:.3f}, wanted finite numbers"
            )

    def outcome(self) -> Outcome:
        """Return the totals up to the last step, earlier parts of an interrupted run included."""
        return Outcome(
            steps=self._steps,
            num_steps=self._num_steps,
            num_tokens=self._reported_tokens + self._num_tokens,
            seconds=self._earlier_seconds + time.monotonic() - self._started,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs to report and count as if nothing had happened."""
        return {
            "steps": self._steps,
            "sums": None if self._sums is None else dict(vars(self._sums)),
            "num_tokens": self._num_tokens,
            "reported_tokens": self._reported_tokens,
            "seconds": self.outcome().seconds,
        }

    def load_state_dict(self, state: Mapping[str, Any], *, device: torch.device) -> None:
        """Go on where another ledger was; sums not yet reported go to the device."""
        self._first_step = self._steps = state["steps"]
        sums = state["sums"]
        if sums is not None:
            self._sums = LossSums(**{name: tensor.to(device) for name, tensor in sums.items()})
        self._num_tokens = state["num_tokens"]
        self._reported_tokens = state["reported_tokens"]
        self._earlier_seconds = state["seconds"]
