from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.train.tiny_run import MASK, make_model, make_tokenizer
from train.attention import attention_for
from train.checkpoint import shape_of
from train.drafter import Drafter
from train.drafter_config import drafter_config_for
from train.flops import RowWork, peak_flops, row_flops
from train.objective import Objective, Rows, draft_loss
from train.slot_weights import DecayedWeights
from train.target import Target

ROW = RowWork(num_tokens=48, num_anchors=6, block_size=4)


class MatrixCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what products of two matrices take; torch's own counter fails on custom gradients."""

    flops = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default:
            self.flops += 2.0 * args[0].numel() * args[1].shape[1]
        return func(*args, **(kwargs or {}))


def counted_matrix_flops() -> tuple[float, float]:
    """Return what torch counts for the matrices of a row, and what the formula says of it."""
    target = Target(make_model(), make_tokenizer(), layer_ids=(1, 3))
    config = drafter_config_for(
        target.config, num_layers=2, block_size=4, mask_token_id=MASK, target_layer_ids=(1, 3)
    )
    drafter = Drafter(config)
    ids_BS = torch.randint(4, 200, (1, ROW.num_tokens))
    rows = Rows(
        ids_BS=ids_BS,
        loss_mask_BS=torch.ones_like(ids_BS, dtype=torch.bool),
        keys_BS=torch.rand(1, ROW.num_tokens),
        target_hidden_BSF=target.states(ids_BS).tapped_BTF,
    )
    objective = Objective(
        num_anchors=ROW.num_anchors,
        weights=DecayedWeights(4.0),
        attention=attention_for(torch.device("cpu")),
        chunk_blocks=ROW.num_anchors,
    )
    with MatrixCounter() as counter:  # type: ignore[no-untyped-call]
        sums = draft_loss(drafter, target=target, rows=rows, objective=objective)
        backward: Any = sums.numerator.backward
        backward()
    shape = shape_of(config)
    keys_seen = ROW.num_tokens / 2 + ROW.block_size
    queries = ROW.num_anchors * ROW.block_size * shape.num_heads * shape.head_dim
    attention = 3 * 2 * shape.num_layers * 2 * queries * keys_seen
    whole = row_flops(ROW, shape=shape, vocab_size=config.vocab_size)
    return counter.flops, whole - attention


def test_operations_are_those_that_torch_counts() -> None:
    counted, predicted = counted_matrix_flops()
    assert counted == predicted


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H200", 989.4),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA L4", 121.0),
        ("NVIDIA L40S", 362.05),
        ("NVIDIA RTX A6000", 154.8),
        ("NVIDIA GeForce GTX 970", None),
        ("", None),
    ],
)
def test_peak_by_the_name_that_the_driver_gives(name: str, tflops: float | None) -> None:
    assert peak_flops(name) == (tflops and pytest.approx(tflops * 1e12))
