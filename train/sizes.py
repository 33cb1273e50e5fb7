"""Sizes of a run in bytes and parameters, by arithmetic alone: no torch.

Source: DFlash, arXiv 2602.06036 v2, and z-lab's checkpoints, for names and shapes of the tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FLOAT32_BYTES = 4
WHOLE_FROM = 100  # three digits say enough of a size


@dataclass(frozen=True)
class DraftShape:
    """The numbers that fix every tensor of a drafter.

    Args:
        hidden_size: Width of the target's and the drafter's hidden states.
        intermediate_size: Width of the MLP.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Width of one head.
        num_layers: Drafter layers.
        num_tapped: Target layers whose states the drafter reads.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_layers: int
    num_tapped: int


def tensor_shapes(shape: DraftShape) -> dict[str, tuple[int, ...]]:
    """Return name and shape of each tensor of a checkpoint, `11 * num_layers + 3` of them."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "self_attn.q_norm.weight": (shape.head_dim,),
        "self_attn.k_norm.weight": (shape.head_dim,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, shape.num_tapped * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for index in range(shape.num_layers):
        shapes |= {f"layers.{index}.{name}": size for name, size in layer.items()}
    return shapes


def num_parameters(shape: DraftShape) -> int:
    """Return how many numbers a drafter trains; the frozen embedding and head are not its own."""
    return sum(math.prod(size) for size in tensor_shapes(shape).values())


def dense_attention_bytes(
    num_heads: int, *, num_queries: int, num_keys: int, batch: int = 1
) -> int:
    """Return the bytes of one layer's float32 attention scores when no fused kernel runs.

    Args:
        num_heads: Query heads.
        num_queries: Draft tokens of a row: anchors times block size.
        num_keys: Context tokens and draft tokens of a row.
        batch: Rows.
    """
    return batch * num_heads * num_queries * num_keys * FLOAT32_BYTES


def feature_bytes(num_tokens: int, *, num_tapped: int, hidden_size: int, itemsize: int) -> int:
    """Return the bytes of the target's tapped states for `num_tokens` padded tokens."""
    return num_tokens * num_tapped * hidden_size * itemsize


def readable(num_bytes: int) -> str:
    """Return bytes with a binary unit, such as `284 GiB`."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(max(num_bytes.bit_length() - 1, 0) // 10, len(units) - 1)
    value = num_bytes / 2 ** (10 * power)
    return (
        f"{value:.0f} {units[power]}"
        if value >= WHOLE_FROM or not power
        else f"{value:.3g} {units[power]}"
    )
