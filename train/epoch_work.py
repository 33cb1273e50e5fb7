"""The work of one pass over the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from train.batches import bucket_of, epoch_batches
from train.flops import RowWork, row_flops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.config import TrainConfig
    from train.data import Sample
    from train.sizes import DraftShape


def padded_rows(samples: Sequence[Sample], config: TrainConfig) -> list[int]:
    """Return the padded length of each row of an epoch, in tokens; padding rows are rows too."""
    buckets, num_rows = config.data.buckets, config.train.micro_batch
    groups = epoch_batches(samples, buckets=buckets, rows=num_rows, order=None)
    widths = [bucket_of(max(len(one.ids) for one in group), buckets) for group in groups]
    return [width for width in widths for _ in range(num_rows)]


def epoch_flops(
    rows: Sequence[int], config: TrainConfig, *, shape: DraftShape, vocab_size: int
) -> float:
    """Return the operations of an epoch's forward and backward, the target left out.

    Args:
        rows: Padded length of each row, in tokens.
        config: The run.
        shape: Of the drafter.
        vocab_size: Rows of the head.
    """
    num_anchors, block_size = config.train.num_anchors, config.draft.block_size
    return sum(
        row_flops(RowWork(one, num_anchors, block_size), shape=shape, vocab_size=vocab_size)
        for one in rows
    )
