from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train.tiny_run import EOS
from train.batches import PADDING_ROW, bucket_of, collate, epoch_batches, epoch_order
from train.data import Sample


def samples_of(lengths: list[int]) -> list[Sample]:
    return [
        Sample(index=i, ids=[5] * length, supervised=[True] * length)
        for i, length in enumerate(lengths)
    ]


@given(st.lists(st.integers(1, 64), max_size=30), st.integers(1, 5), st.integers(0, 3))
def test_an_epoch_holds_every_sample_once(lengths: list[int], rows: int, epoch: int) -> None:
    samples = samples_of(lengths)
    buckets = (16, 32, 64)
    order = epoch_order(len(samples), seed=1, epoch=epoch)
    groups = list(epoch_batches(samples, buckets=buckets, rows=rows, order=order))
    assert sorted(one.index for group in groups for one in group) == list(range(len(samples)))
    assert all(len({bucket_of(len(one.ids), buckets) for one in group}) == 1 for group in groups)
    assert all(1 <= len(group) <= rows for group in groups)
    # What is left of a bucket makes one smaller group.
    assert sum(len(group) < rows for group in groups) <= len(buckets)
    assert len(groups) == len(list(epoch_batches(samples, buckets=buckets, rows=rows, order=None)))


def test_epoch_order_is_seeded_and_new_each_epoch() -> None:
    orders = {(s, e): epoch_order(50, seed=s, epoch=e) for s in (1, 2) for e in (0, 1)}
    assert torch.equal(orders[1, 0], epoch_order(50, seed=1, epoch=0))
    assert len({tuple(order.tolist()) for order in orders.values()}) == 4


def test_epoch_order_is_the_one_that_earlier_runs_had() -> None:
    assert epoch_order(6, seed=42, epoch=1).tolist() == [5, 2, 3, 4, 0, 1]


def test_batch_has_a_constant_shape() -> None:
    batch = collate(samples_of([3, 5]), rows=4, buckets=(8, 16), eos_id=EOS)
    assert batch.ids_BS.shape == (4, 8)
    assert batch.loss_mask_BS.sum(dim=1).tolist() == [3, 5, 0, 0]
    assert batch.ids_BS[0, 3:].eq(EOS).all()
    assert batch.sample_indices == [0, 1, PADDING_ROW, PADDING_ROW]
