"""Attention under the training mask, dense or fused.

Shape suffixes: B sequences, H query heads, G key/value heads, Q draft tokens, S context tokens,
T = S + Q, E head dim.

What is fused must stay fused: where torch falls back to un-compiled flex_attention, it materialises
the scores and says so once at most. Four ways lead there, and each is an error here: settings that
disable or bypass compilation, a call from un-compiled code, a graph break, too many recompilations.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._dynamo import config as dynamo_config
from torch._dynamo.utils import counters
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from train.block_mask import block_mask
from train.visibility import dense_mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from train.anchors import Anchors
    from train.drafter import Attend

DENSE_BUDGET_BYTES = 4 * 2**30
"""Scores that the dense path may hold for one layer, in bytes."""

RECOMPILE_LIMIT = 64
"""Shapes that flex_attention may be compiled for in one process; torch's default is 8."""


class DenseAttentionTooLargeError(ValueError):
    """Dense attention would hold more scores than its budget."""


class UnfusedAttentionError(RuntimeError):
    """torch is set so that flex_attention could run unfused without failing."""


@dataclass(frozen=True)
class DenseAttention:
    """Attention with a materialised mask: the CPU's, and the reference for the fused one."""

    mask_B1QT: Tensor

    def __call__(self, q_BHQE: Tensor, k_BGTE: Tensor, v_BGTE: Tensor) -> Tensor:
        """Attend; see `train.drafter.Attend`."""
        return functional.scaled_dot_product_attention(
            q_BHQE, k_BGTE, v_BGTE, attn_mask=self.mask_B1QT, enable_gqa=True
        )


@dataclass(frozen=True)
class FusedAttention:
    """Attention by compiled flex_attention, which skips the tiles that nothing sees."""

    tiles: BlockMask

    def __call__(self, q_BHQE: Tensor, k_BGTE: Tensor, v_BGTE: Tensor) -> Tensor:
        """Attend; see `train.drafter.Attend`."""
        return compiled_flex_attention()(
            q_BHQE, k_BGTE, v_BGTE, block_mask=self.tiles, enable_gqa=True
        )


def training_attention(
    anchors: Anchors, *, num_context: int, block_size: int, num_heads: int
) -> Attend:
    """Return attention under the training mask: fused on CUDA, dense elsewhere.

    flex_attention has no backward pass on the CPU (torch 2.10 to 2.15), so nothing is to be chosen.

    Args:
        anchors: Where the blocks start.
        num_context: S, the padded context length; few different values, each is compiled for.
        block_size: Slots per block.
        num_heads: Query heads, to predict what the dense path would hold.

    Raises:
        DenseAttentionTooLargeError: The dense path would exceed its budget.
        UnfusedAttentionError: torch is set so that flex_attention could run unfused.
    """
    if anchors.anchor_BN.device.type == "cuda":
        refuse_unfused_settings()
        return FusedAttention(block_mask(anchors, num_context=num_context, block_size=block_size))
    return dense_attention(
        anchors, num_context=num_context, block_size=block_size, num_heads=num_heads
    )


def dense_attention(
    anchors: Anchors,
    *,
    num_context: int,
    block_size: int,
    num_heads: int,
    budget_bytes: int = DENSE_BUDGET_BYTES,
) -> DenseAttention:
    """Evaluate the mask for all pairs.

    Args:
        anchors: Where the blocks start.
        num_context: S, the padded context length.
        block_size: Slots per block.
        num_heads: Query heads.
        budget_bytes: Scores that one layer may hold, in bytes.

    Raises:
        DenseAttentionTooLargeError: The scores exceed the budget.
    """
    num_rows, num_blocks = anchors.anchor_BN.shape
    num_queries = num_blocks * block_size
    needed_bytes = dense_scores_bytes(
        num_rows=num_rows, num_heads=num_heads, num_queries=num_queries, num_context=num_context
    )
    if needed_bytes > budget_bytes:
        raise DenseAttentionTooLargeError(
            f"dense attention would hold {needed_bytes / 2**30:.1f} GiB of scores per layer, over "
            f"{budget_bytes / 2**30:.1f} GiB: {num_rows} rows, {num_heads} heads, {num_queries} "
            f"draft tokens over {num_context} context tokens. Use fewer anchors, or shorter or "
            "fewer rows; or a CUDA device, where the scores are never held"
        )
    return DenseAttention(dense_mask(anchors, num_context=num_context, block_size=block_size))


def dense_scores_bytes(
    *, num_rows: int, num_heads: int, num_queries: int, num_context: int
) -> int:
    """Predict one layer's float32 scores, in bytes, when attention is not fused."""
    return 4 * num_rows * num_heads * num_queries * (num_context + num_queries)


def refuse_unfused_settings() -> None:
    """Stop before torch silently runs flex_attention unfused.

    Raises:
        UnfusedAttentionError: A setting lets it, named in the message.
    """
    reasons = {
        "torch.compile is disabled (TORCH_COMPILE_DISABLE or torch._dynamo.config.disable)": (
            dynamo_config.disable
        ),
        "torch._dynamo.config.suppress_errors is True, so a failed compilation runs uncompiled": (
            dynamo_config.suppress_errors
        ),
        "torch._dynamo.config.error_on_nested_fx_trace is False, so a call during another "
        "thread's tracing runs uncompiled": not dynamo_config.error_on_nested_fx_trace,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise UnfusedAttentionError(
            f"flex_attention could materialise all scores: {'; '.join(found)}"
        )


@functools.cache
def compiled_flex_attention() -> Callable[..., Tensor]:
    """Compile flex_attention, once per process and at its first use.

    Raises:
        UnfusedAttentionError: torch is set so that it could run unfused.
    """
    refuse_unfused_settings()
    dynamo_config.recompile_limit = max(dynamo_config.recompile_limit, RECOMPILE_LIMIT)
    # torch runs the unfused kernel with this warning only, shown once per process.
    warnings.filterwarnings("error", message="flex_attention called without torch.compile")
    # fullgraph also makes hitting the recompile limit an error instead of a fall-back.
    compiled: Any = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return compiled  # type: ignore[no-any-return]


def num_compiled_graphs() -> int:
    """Count the graphs that this process has compiled; constant once all shapes are warm."""
    return int(counters["stats"]["unique_graphs"])
