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
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from torch import Tensor
from torch._dynamo import config as dynamo_config
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, FlexKernelOptions, flex_attention

from train.block_mask import block_mask
from train.settings import ConfigError
from train.sizes import dense_attention_bytes
from train.visibility import dense_mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from train.anchors import Anchors
    from train.drafter import Attend

DENSE_BUDGET_BYTES = 8 * 2**30
"""Scores that dense attention may hold for one layer, in bytes."""

# Left to itself, torch takes its decoding kernel for fewer than 128 queries; with a block mask's
# captured tensors that one does not build (torch 2.11, seen on an H200).
KERNEL_OPTIONS: FlexKernelOptions = {"BACKEND": "TRITON"}

RECOMPILE_LIMIT = 64
"""Shapes that flex_attention may be compiled for in one process; torch's default is 8."""


class DenseAttentionTooLargeError(ValueError):
    """Dense attention would hold more scores than its budget."""


class UnfusedAttentionError(RuntimeError):
    """flex_attention would, or could without failing, run unfused."""


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
            q_BHQE,
            k_BGTE,
            v_BGTE,
            block_mask=self.tiles,
            enable_gqa=True,
            kernel_options=KERNEL_OPTIONS,
        )


class MaskedAttention(Protocol):
    """Makes the attention of one micro-batch; `DenseMask` or `FusedMask`."""

    def __call__(
        self, anchors: Anchors, *, num_context: int, block_size: int, num_heads: int
    ) -> Attend:
        """Return attention under the training mask.

        Args:
            anchors: Where the blocks start.
            num_context: S, the padded context length.
            block_size: Slots per block.
            num_heads: Query heads.
        """
        ...


@dataclass(frozen=True)
class DenseMask:
    """Evaluates the mask for all pairs, on any device."""

    def __call__(
        self, anchors: Anchors, *, num_context: int, block_size: int, num_heads: int
    ) -> DenseAttention:
        """See `MaskedAttention`.

        Raises:
            DenseAttentionTooLargeError: The scores of a layer exceed `DENSE_BUDGET_BYTES`.
        """
        num_rows, num_blocks = anchors.anchor_BN.shape
        num_queries = num_blocks * block_size
        needed_bytes = dense_attention_bytes(
            num_heads,
            num_queries=num_queries,
            num_keys=num_context + num_queries,
            batch=num_rows,
        )
        if needed_bytes > DENSE_BUDGET_BYTES:
            raise DenseAttentionTooLargeError(
                f"dense attention would hold {needed_bytes / 2**30:.1f} GiB of scores per layer, "
                f"over {DENSE_BUDGET_BYTES / 2**30:.1f} GiB: {num_rows} rows, {num_heads} heads, "
                f"{num_queries} draft tokens over {num_context} context tokens. Use fewer anchors, "
                "or shorter or fewer rows; or a CUDA device, where the scores are never held"
            )
        return DenseAttention(dense_mask(anchors, num_context=num_context, block_size=block_size))


@dataclass(frozen=True)
class FusedMask:
    """Computes which tiles are visible; flex_attention is compiled for each `num_context`."""

    def __call__(
        self,
        anchors: Anchors,
        *,
        num_context: int,
        block_size: int,
        num_heads: int,  # noqa: ARG002 - the same for all heads; the protocol has it
    ) -> FusedAttention:
        """See `MaskedAttention`.

        Raises:
            UnfusedAttentionError: torch is set so that flex_attention could run unfused.
        """
        refuse_unfused_settings()
        return FusedAttention(block_mask(anchors, num_context=num_context, block_size=block_size))


def attention_for(
    device: torch.device, *, kind: Literal["auto", "dense", "flex"] = "auto"
) -> MaskedAttention:
    """Return what a device is to train with; auto is flex on CUDA and dense elsewhere.

    Args:
        device: Where the drafter trains.
        kind: Which attention.

    Raises:
        ConfigError: flex is wanted where it has no backward pass (CPU, torch 2.10 to 2.15).
    """
    if kind == "flex" and device.type != "cuda":
        raise ConfigError(
            [f"train.attention: found flex, which cannot train on {device.type}; wanted dense"]
        )
    if kind == "flex" or (kind == "auto" and device.type == "cuda"):
        return FusedMask()
    return DenseMask()


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
    allow_shapes(0)
    # torch runs the unfused kernel with this warning only, shown once per process.
    warnings.filterwarnings("error", message="flex_attention called without torch.compile")
    # fullgraph also makes hitting the recompile limit an error instead of a fall-back.
    compiled: Any = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return compiled  # type: ignore[no-any-return]


def allow_shapes(num_shapes: int) -> None:
    """Let flex_attention be compiled for so many shapes; four times as many are an error.

    Without room torch's default would be met by the ninth; with fullgraph, meeting it is an error.
    """
    limit = max(RECOMPILE_LIMIT, 4 * num_shapes)
    dynamo_config.recompile_limit = max(dynamo_config.recompile_limit, limit)
    dynamo_config.accumulated_recompile_limit = max(
        dynamo_config.accumulated_recompile_limit, limit
    )
