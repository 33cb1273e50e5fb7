"""What each optimizer step trains on, as a pure function of data, settings and step.

Shape suffixes: B rows, S tokens.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from train.anchors import anchor_keys
from train.batches import collate, epoch_batches, epoch_order
from train.objective import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from train.batches import Batch
    from train.config import TrainConfig
    from train.data import Sample
    from train.features import Features, FeatureStore
    from train.plan import Plan


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


@dataclass(frozen=True)
class DataOrder:
    """The order in which a run trains on its samples.

    Attributes:
        config: The run.
        samples: The training data.
        eos_id: Fills the padding.
        plan: Says where in the data a step is.
    """

    config: TrainConfig
    samples: Sequence[Sample]
    eos_id: int
    plan: Plan

    def windows(self, store: FeatureStore, *, first_step: int = 0) -> Iterator[Window]:
        """Yield what each optimizer step trains on.

        Args:
            store: Gives the target's states.
            first_step: Steps taken already: what they trained on is passed over.
        """
        seed = self.config.train.seed
        first_epoch, first_window = self.plan.place(first_step)
        for epoch in range(first_epoch, self.plan.epochs):
            skipped = first_window if epoch == first_epoch else 0
            for window in self._epoch(epoch, first_window=skipped):
                yield Window(
                    epoch=epoch,
                    rows=[
                        rows_of(one, store.features(one), seed=seed, epoch=epoch) for one in window
                    ],
                    num_tokens=sum(len(one.ids) for batch in window for one in batch.samples),
                )

    def batches_before(self, step: int) -> Iterator[Batch]:
        """Yield the micro-batches in which the steps before `step` met their samples first."""
        epoch, num_windows = self.plan.place(step)
        if epoch > self.plan.origin.epoch:
            num_windows = self.plan.steps_per_epoch
        for window in itertools.islice(self._epoch(self.plan.origin.epoch), num_windows):
            yield from window

    def _epoch(self, epoch: int, *, first_window: int = 0) -> Iterator[list[Batch]]:
        """Yield the micro-batches of each optimizer step of an epoch."""
        rows, buckets = self.config.train.micro_batch, self.config.data.buckets
        accumulation = self.config.train.accumulation
        order = epoch_order(len(self.samples), seed=self.config.train.seed, epoch=epoch)
        groups = epoch_batches(self.samples, buckets=buckets, rows=rows, order=order)
        groups = itertools.islice(groups, first_window * accumulation, None)
        while window := list(itertools.islice(groups, accumulation)):
            yield [
                collate(group, rows=rows, buckets=buckets, eos_id=self.eos_id) for group in window
            ]


def rows_of(batch: Batch, features: Features, *, seed: int, epoch: int) -> Rows:
    """Put a batch on the features' device, with the keys that pick its anchors."""
    device = features.tapped_BSF.device
    num_tokens = batch.ids_BS.shape[1]
    keys = [
        anchor_keys(num_tokens, seed=seed, epoch=epoch, sample_index=index)
        for index in batch.sample_indices
    ]
    start_BS = batch.document_start_BS
    return Rows(
        ids_BS=batch.ids_BS.to(device, non_blocking=True),
        loss_mask_BS=batch.loss_mask_BS.to(device, non_blocking=True),
        keys_BS=torch.stack(keys).to(device, non_blocking=True),
        target_hidden_BSF=features.tapped_BSF,
        document_start_BS=None if start_BS is None else start_BS.to(device, non_blocking=True),
        target_final_BSD=features.final_BSD,
    )
