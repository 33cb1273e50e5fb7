"""The training loop on one device.

Shape suffixes: B rows, S tokens, F = tapped layers * D.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch.nn.utils import clip_grad_norm_

from train.anchors import anchor_keys
from train.attention import attention_for
from train.data import Sample, collate, epoch_batches, epoch_order
from train.features import FeatureStore
from train.ledger import Ledger, Step
from train.objective import Objective, Rows, draft_loss
from train.optimizer import build_optimizer, set_learning_rate
from train.schedule import warmup_cosine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from train.config import TrainConfig, TrainSettings
    from train.data import Batch
    from train.drafter import Drafter
    from train.ledger import Outcome, StepReport
    from train.loss import LossSums
    from train.target import Target


class Stop(Protocol):
    """Something that can ask the loop to end after the step it is in."""

    @property
    def requested(self) -> bool:
        """True when the loop shall end."""
        ...


@dataclass(frozen=True)
class Pair:
    """The two models, on one device."""

    target: Target
    drafter: Drafter


def micro_batches(
    samples: Sequence[Sample], config: TrainConfig, *, eos_id: int, epoch: int
) -> Iterator[Batch]:
    """Yield the micro-batches of an epoch in its order."""
    rows, buckets = config.train.micro_batch, config.data.buckets
    order = epoch_order(len(samples), seed=config.train.seed, epoch=epoch)
    for group in epoch_batches(samples, buckets=buckets, rows=rows, order=order):
        yield collate(group, rows=rows, buckets=buckets, eos_id=eos_id)


def rows_of(batch: Batch, features_BSF: Tensor, *, seed: int, epoch: int) -> Rows:
    """Put a batch on the features' device, with the keys that pick its anchors."""
    device = features_BSF.device
    num_tokens = batch.ids_BS.shape[1]
    keys = [
        anchor_keys(num_tokens, seed=seed, epoch=epoch, sample_index=index)
        for index in batch.sample_indices
    ]
    return Rows(
        ids_BS=batch.ids_BS.to(device, non_blocking=True),
        loss_mask_BS=batch.loss_mask_BS.to(device, non_blocking=True),
        keys_BS=torch.stack(keys).to(device, non_blocking=True),
        target_hidden_BSF=features_BSF,
    )


def num_optimizer_steps(samples: Sequence[Sample], config: TrainConfig) -> int:
    """Return the optimizer steps of the whole run; every epoch has as many."""
    groups = epoch_batches(
        samples, buckets=config.data.buckets, rows=config.train.micro_batch, order=None
    )
    per_epoch = math.ceil(sum(1 for _ in groups) / config.train.accumulation)
    num_steps = per_epoch * config.train.epochs
    return min(num_steps, config.train.max_steps or num_steps)


def objective_of(config: TrainConfig, *, device: torch.device, num_anchors: int) -> Objective:
    """Return the run's objective with so many blocks per row."""
    return Objective(
        num_anchors=num_anchors,
        gamma=config.gamma,
        attention=attention_for(device),
        chunk_blocks=config.train.objective_chunk_blocks,
    )


def train_step(
    pair: Pair,
    *,
    optimizer: torch.optim.Optimizer,
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


def train(
    config: TrainConfig,
    *,
    pair: Pair,
    samples: Sequence[Sample],
    report: Callable[[StepReport], None],
    stop: Stop,
) -> Outcome:
    """Train the drafter in place.

    `report` is called every `log.every_steps` steps and after the last; `stop` is looked at after
    each.
    """
    settings = config.train
    optimizer = build_optimizer(
        pair.drafter,
        peak_lr=settings.peak_lr,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
    )
    objective = objective_of(config, device=pair.target.device, num_anchors=settings.num_anchors)
    num_steps = num_optimizer_steps(samples, config)
    ledger = Ledger(num_steps, every_steps=config.log.every_steps, report=report)
    pair.drafter.train()
    for index, window in enumerate(_windows(config, pair=pair, samples=samples)):
        rate = learning_rate(index, num_steps=num_steps, settings=settings)
        set_learning_rate(optimizer, rate)
        sums, grad_norm = train_step(
            pair,
            optimizer=optimizer,
            window=window.rows,
            objective=objective,
            grad_clip=settings.grad_clip,
        )
        is_last = index + 1 == num_steps or stop.requested
        step = Step(window.epoch, sums, window.num_tokens, rate, grad_norm)
        ledger.add(step, is_last=is_last)
        if is_last:
            break
    pair.drafter.eval()
    return ledger.outcome()


def learning_rate(step: int, *, num_steps: int, settings: TrainSettings) -> float:
    """Return the learning rate of an optimizer step, counted from 0."""
    share = warmup_cosine(
        step,
        num_steps=num_steps,
        num_warmup_steps=round(settings.warmup_fraction * num_steps),
        final_fraction=settings.final_lr_fraction,
    )
    return settings.peak_lr * share


@dataclass(frozen=True)
class _Window:
    """The micro-batches of one optimizer step, with their number of tokens without padding."""

    epoch: int
    rows: list[Rows]
    num_tokens: int


def _windows(config: TrainConfig, *, pair: Pair, samples: Sequence[Sample]) -> Iterator[_Window]:
    """Yield what each optimizer step trains on."""
    seed = config.train.seed
    store = FeatureStore(pair.target, budget_bytes=config.train.cache_features_bytes)
    for epoch in range(config.train.epochs):
        batches = micro_batches(samples, config, eos_id=pair.target.eos_id, epoch=epoch)
        while window := list(itertools.islice(batches, config.train.accumulation)):
            yield _Window(
                epoch=epoch,
                rows=[rows_of(one, store.features(one), seed=seed, epoch=epoch) for one in window],
                num_tokens=sum(len(sample.ids) for batch in window for sample in batch.samples),
            )
