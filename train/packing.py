"""Several conversations in one row, none of which sees another.

Short conversations leave most of a bucket to padding. Packed, their tokens stand behind each other;
positions restart with each, and masks keep target and drafter inside.

Shape suffixes: B rows, S tokens.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from train.data import Sample
from train.frozen_target import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from train.data import Dataset
    from train.data_section import DataConfig


def packed(training: Dataset, data: DataConfig) -> Dataset:
    """Return the rows to train on: one for each conversation, or packed where the run asks."""
    if not data.packing:
        return training
    return replace(training, samples=pack(training.samples, length=data.buckets[-1]))


def pack(samples: Sequence[Sample], *, length: int) -> list[Sample]:
    """Put samples into few rows: the longest first, each where it fits best.

    Which share a row depends on the samples alone, so that a resumed run has the same rows.

    Args:
        samples: One conversation each.
        length: Tokens of a row; no sample is longer.
    """
    rows: list[list[Sample]] = []
    # Free tokens and index of each row that still takes something, rising.
    free: list[tuple[int, int]] = []
    for sample in sorted(samples, key=lambda one: (-len(one.ids), one.index)):
        place = bisect.bisect_left(free, (len(sample.ids), -1))
        if place == len(free):
            rows.append([])
            num_free, row = length, len(rows) - 1
        else:
            num_free, row = free.pop(place)
        rows[row].append(sample)
        if num_left := num_free - len(sample.ids):
            bisect.insort(free, (num_left, row))
    return sorted(map(_joined, rows), key=lambda row: row.index)


def _joined(samples: list[Sample]) -> Sample:
    samples = sorted(samples, key=lambda one: one.index)
    lengths = [len(sample.ids) for sample in samples]
    return Sample(
        index=samples[0].index,
        ids=[token for sample in samples for token in sample.ids],
        supervised=[is_on for sample in samples for is_on in sample.supervised],
        document_starts=tuple(itertools.accumulate(lengths[:-1], initial=0)),
    )


def documents_view(document_start_BS: Tensor) -> View:
    """Return what the tokens of packed rows see: all before them in their own document.

    Args:
        document_start_BS: See `train.anchors`.
    """
    place_S = torch.arange(document_start_BS.shape[1], device=document_start_BS.device)
    positions_BS = place_S - document_start_BS
    is_same_BSS = document_start_BS[:, :, None] == document_start_BS[:, None]
    return View(
        positions_BT=positions_BS,
        visible_BTS=is_same_BSS & (place_S[:, None] >= place_S),
        key_positions_BS=positions_BS,
    )
