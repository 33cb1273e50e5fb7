"""The training loop on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch.nn.utils import clip_grad_norm_

from train.ledger import Step
from train.objective import draft_loss, objective_of
from train.optimizer import set_learning_rate
from train.schedule import learning_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from train.course import Course, Pair
    from train.ledger import Ledger
    from train.loss import LossSums
    from train.objective import Objective, Rows
    from train.optimizer import Optimizer


class Stop(Protocol):
    """Something that can ask the loop to end after the step it is in."""

    @property
    def requested(self) -> bool:
        """True when the loop shall end."""
        ...


@dataclass(frozen=True)
class StepTaken:
    """An optimizer step that has just been taken.

    Attributes:
        step: Optimizer steps taken so far, this one included.
        num_steps: Optimizer steps of the whole run.
        epoch: Pass over the data, from 0.
        is_last: No step follows: the run is complete, or the user stops it.
    """

    step: int
    num_steps: int
    epoch: int
    is_last: bool


AfterStep = Callable[[StepTaken], None]
"""What is done after each optimizer step; finds the models where it was made.

It must leave the drafter in training mode, and torch's random state alone unless it restores it.
"""


def train(
    course: Course, *, ledger: Ledger, stop: Stop, after_step: Sequence[AfterStep] = ()
) -> None:
    """Train the drafter in place.

    Args:
        course: What to train, and from which step on.
        ledger: Told of each step.
        stop: Looked at after each step.
        after_step: Called in this order after each step that the ledger was told of.
    """
    config, pair, plan = course.config, course.pair, course.plan
    objective = objective_of(
        config, device=pair.target.device, num_anchors=config.train.num_anchors
    )
    pair.drafter.train()
    ledger.start()
    steps = range(course.first_step, plan.num_steps)
    found = course.order.windows(course.store, first_step=course.first_step)
    for step, window in zip(steps, found, strict=False):  # `max_steps` may leave data over
        rate = learning_rate(step, num_steps=plan.num_steps, settings=config.train)
        set_learning_rate(course.optimizer, rate)
        sums, grad_norm = train_step(
            pair,
            optimizer=course.optimizer,
            window=window.rows,
            objective=objective,
            grad_clip=config.train.grad_clip,
        )
        if course.average is not None:
            course.average.update_parameters(pair.drafter)
        ledger.add(Step(window.epoch, sums, window.num_tokens, rate, grad_norm))
        is_last = step + 1 == plan.num_steps or stop.requested
        taken = StepTaken(step + 1, plan.num_steps, window.epoch, is_last)
        for do in after_step:
            do(taken)
        if is_last:
            break
    pair.drafter.eval()


def train_step(
    pair: Pair,
    *,
    optimizer: Optimizer,
    window: Sequence[Rows],
    objective: Objective,
    grad_clip: float,
) -> tuple[LossSums, Tensor]:
    """Take one optimizer step over an accumulation window.

    The gradient is that of the window's weighted mean: micro-batches add up the gradients of their
    sums, and the sum is divided by the window's weights at the end. Means of micro-batches would
    count a label more when its micro-batch has few.

    Returns:
        The window's sums without graph, and the gradient norm before clipping, scalar.
    """
    optimizer.zero_grad(set_to_none=True)
    totals: list[LossSums] = []
    for rows in window:
        sums = draft_loss(pair.drafter, target=pair.target, rows=rows, objective=objective)
        sums.numerator.backward()  # type: ignore[no-untyped-call]
        totals.append(sums.detach())
    total = sum(totals[1:], start=totals[0])
    parameters = list(pair.drafter.parameters())
    # A window without any label has zero gradients; they stay zero.
    scale = total.denominator.clamp(min=torch.finfo(torch.float32).tiny).reciprocal()
    torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], scale)
    grad_norm = clip_grad_norm_(parameters, grad_clip)
    optimizer.step()
    return total, grad_norm
