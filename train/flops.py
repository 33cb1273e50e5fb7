"""Floating point operations of a training, by arithmetic alone: no torch.

A multiplication with its addition counts as two. What is recomputed to save memory does not count:
it is the work of the algorithm, not of the machine (PaLM, arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train.sizes import DraftShape

FORWARD_AND_BACKWARD = 3
"""Passes over a trained matrix: forward, gradient of its input, gradient of itself."""
ONE_GRADIENT = 2
"""Passes over a matrix that is frozen, or whose input is: forward, and one of the two gradients."""

PEAK_TFLOPS = {
    "A10": 125.0,
    "A100": 312.0,
    "A40": 149.7,
    "B200": 2250.0,
    "H100 PCIe": 756.0,
    "H100": 989.4,
    "H200": 989.4,
    "L4": 121.0,
    "L40": 181.05,
    "L40S": 362.05,
    "RTX A6000": 154.8,
}
"""Dense bfloat16 peak by GPU, 10^12 operations per second. Source: NVIDIA's data sheets, where the
figures with sparsity are twice these."""


@dataclass(frozen=True)
class RowWork:
    """One row of a training batch.

    Args:
        num_tokens: Context tokens, padding included.
        num_anchors: Blocks.
        block_size: Slots of a block, the known first one included.
    """

    num_tokens: int
    num_anchors: int
    block_size: int


def row_flops(row: RowWork, *, shape: DraftShape, vocab_size: int) -> float:
    """Return the operations of forward and backward over one row, the target left out.

    Anchors are taken to be spread evenly, so that a block sees half of the context.
    """
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    num_drafts = row.num_anchors * row.block_size
    fusion = row.num_tokens * shape.num_tapped * hidden * hidden  # its input is the frozen target's
    context = shape.num_layers * 2 * hidden * keys
    draft = shape.num_layers * (2 * hidden * (queries + keys) + 3 * hidden * inner)
    num_seen = row.num_tokens / 2 + row.block_size
    attention = shape.num_layers * 2 * queries * num_seen
    matrices = row.num_tokens * context + num_drafts * (draft + attention)
    head = row.num_anchors * (row.block_size - 1) * hidden * vocab_size  # the anchor is known
    return 2.0 * (FORWARD_AND_BACKWARD * matrices + ONE_GRADIENT * (fusion + head))


def peak_flops(device_name: str) -> float | None:
    """Return the dense bfloat16 peak of a GPU, operations per second; None when it is not known.

    Args:
        device_name: As the driver calls it, such as `NVIDIA H100 80GB HBM3`.
    """
    words = device_name.replace("-", " ").split()
    found = [name for name in PEAK_TFLOPS if set(name.split()) <= set(words)]
    return PEAK_TFLOPS[max(found, key=len)] * 1e12 if found else None
