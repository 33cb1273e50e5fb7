"""The batches of an epoch: which rows share one, how they are padded, and in which order they come.

Shape suffixes: B rows, S tokens (padded on the right to a bucket's length).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from train.data import Sample

PADDING_ROW = -1
"""Sample index of a row that only fills a batch to its constant height."""


@dataclass(frozen=True)
class Batch:
    """Rows of one bucket, on the CPU.

    Args:
        ids_BS: Token ids; padding is the end-of-turn token.
        loss_mask_BS: True on supervised tokens.
        samples: What the rows are; a batch may have fewer samples than rows.
        document_start_BS: See `train.anchors`, padding being a document of its own; None when every
            row holds one conversation.
    """

    ids_BS: Tensor
    loss_mask_BS: Tensor
    samples: list[Sample]
    document_start_BS: Tensor | None = None

    @property
    def sample_indices(self) -> list[int]:
        """Index of each row's sample; `PADDING_ROW` for a row without one."""
        num_padding = len(self.ids_BS) - len(self.samples)
        return [sample.index for sample in self.samples] + [PADDING_ROW] * num_padding


def epoch_batches(
    samples: Sequence[Sample], *, buckets: Sequence[int], rows: int, order: Tensor | None
) -> Iterator[list[Sample]]:
    """Yield groups of samples that share a bucket.

    Their number depends on the samples alone, so every epoch has as many.

    Args:
        samples: What to batch.
        buckets: Rising lengths in tokens; the last holds every sample.
        rows: Samples per group; the last group of a bucket may have fewer.
        order: Permutation of the samples; None keeps them as they are.
    """
    waiting: dict[int, list[Sample]] = {length: [] for length in buckets}
    for place in range(len(samples)) if order is None else order.tolist():
        sample = samples[place]
        group = waiting[bucket_of(len(sample.ids), buckets)]
        group.append(sample)
        if len(group) == rows:
            yield list(group)
            group.clear()
    yield from (group for group in waiting.values() if group)


def bucket_of(num_tokens: int, buckets: Sequence[int]) -> int:
    """Return the smallest bucket that holds so many tokens."""
    return next(length for length in buckets if num_tokens <= length)


def epoch_order(num_samples: int, *, seed: int, epoch: int) -> Tensor:
    """Return the permutation of an epoch, the same on every machine."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(num_samples, generator=generator)


def collate(group: list[Sample], *, rows: int, buckets: Sequence[int], eos_id: int) -> Batch:
    """Pad a group to a batch of constant shape.

    Args:
        group: Samples of one bucket.
        rows: Height of the batch; rows beyond the group have no supervised token.
        buckets: Lengths, as in `epoch_batches`.
        eos_id: Fills the padding.
    """
    length = bucket_of(max(len(sample.ids) for sample in group), buckets)
    ids_BS = torch.full((rows, length), eos_id)
    loss_mask_BS = torch.zeros(rows, length, dtype=torch.bool)
    for row, sample in enumerate(group):
        ids_BS[row, : len(sample.ids)] = torch.tensor(sample.ids)
        loss_mask_BS[row, : len(sample.ids)] = torch.tensor(sample.supervised)
    return Batch(
        ids_BS=ids_BS,
        loss_mask_BS=loss_mask_BS,
        samples=group,
        document_start_BS=document_starts(group, rows=rows, length=length),
    )


def document_starts(group: Sequence[Sample], *, rows: int, length: int) -> Tensor | None:
    """Return `document_start_BS` of a batch; None when every row holds one conversation."""
    if all(len(sample.document_starts) == 1 for sample in group):
        return None
    start_BS = torch.zeros(rows, length, dtype=torch.int64)
    for row, sample in enumerate(group):
        for start in (*sample.document_starts, len(sample.ids)):
            start_BS[row, start:] = start
    return start_BS
