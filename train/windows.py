"""What each optimizer step trains on, as a pure function of data, settings and step.

Shape suffixes: B rows, S tokens.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from train.anchors import anchor_keys
from train.data import Sample, collate, epoch_batches, epoch_order
from train.objective import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from train.config import TrainConfig
    from train.data import Batch
    from train.features import Features, FeatureStore


@dataclass(frozen=True)
class Window:
    """The micro-batches of one optimizer step.

    Attributes:
        epoch: Pass over the data, from 0.
        rows: One for each micro-batch.
        num_tokens: Context tokens without padding.
    """

    epoch: int
    rows: list[Rows]
    num_tokens: int


def windows(
    config: TrainConfig, *, samples: Sequence[Sample], store: FeatureStore, eos_id: int
) -> Iterator[Window]:
    """Yield what each optimizer step trains on.

    Args:
        config: The run.
        samples: The training data.
        store: Gives the target's states.
        eos_id: Fills the padding.
    """
    seed = config.train.seed
    for epoch in range(config.train.epochs):
        batches = micro_batches(samples, config, eos_id=eos_id, epoch=epoch)
        while window := list(itertools.islice(batches, config.train.accumulation)):
            yield Window(
                epoch=epoch,
                rows=[rows_of(one, store.features(one), seed=seed, epoch=epoch) for one in window],
                num_tokens=sum(len(sample.ids) for batch in window for sample in batch.samples),
            )


def micro_batches(
    samples: Sequence[Sample], config: TrainConfig, *, eos_id: int, epoch: int
) -> Iterator[Batch]:
    """Yield the micro-batches of an epoch in its order."""
    rows, buckets = config.train.micro_batch, config.data.buckets
    order = epoch_order(len(samples), seed=config.train.seed, epoch=epoch)
    for group in epoch_batches(samples, buckets=buckets, rows=rows, order=order):
        yield collate(group, rows=rows, buckets=buckets, eos_id=eos_id)


def rows_of(batch: Batch, features: Features, *, seed: int, epoch: int) -> Rows:
    """Put a batch on the features' device, with the keys that pick its anchors."""
    device = features.tapped_BSF.device
    num_tokens = batch.ids_BS.shape[1]
    keys = [
        anchor_keys(num_tokens, seed=seed, epoch=epoch, sample_index=index)
        for index in batch.sample_indices
    ]
    return Rows(
        ids_BS=batch.ids_BS.to(device, non_blocking=True),
        loss_mask_BS=batch.loss_mask_BS.to(device, non_blocking=True),
        keys_BS=torch.stack(keys).to(device, non_blocking=True),
        target_hidden_BSF=features.tapped_BSF,
        target_final_BSD=features.final_BSD,
    )


def num_optimizer_steps(samples: Sequence[Sample], config: TrainConfig) -> int:
    """Return the optimizer steps of the whole run; every epoch has as many."""
    groups = epoch_batches(
        samples, buckets=config.data.buckets, rows=config.train.micro_batch, order=None
    )
    per_epoch = math.ceil(sum(1 for _ in groups) / config.train.accumulation)
    num_steps = per_epoch * config.train.epochs
    return min(num_steps, config.train.max_steps or num_steps)
