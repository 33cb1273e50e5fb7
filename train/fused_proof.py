"""Proof by memory that attention never holds its scores.

Shape suffixes: B rows, H query heads, G key/value heads, Q draft tokens, T keys, E head dim.

Nothing in torch tells afterwards which kernel ran: the unfused one gives the same numbers, warns at
most once, and needs room for all scores. So the room that attention takes is what is measured.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from train.attention import UnfusedAttentionError
from train.sizes import dense_attention_bytes, readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from train.anchors import Anchors
    from train.attention import MaskedAttention
    from train.drafter import Attend

_COPIES_OF_INPUTS = 4
"""Fused attention takes room for results and gradients, a few times that of its inputs."""


@dataclass(frozen=True)
class AttentionMemory:
    """Device memory that one layer's attention takes beyond what lay there before, in bytes.

    Attributes:
        forward_bytes: Most of any layer's forward pass.
        backward_bytes: Most of any layer's backward pass; 0 if there was none.
        inputs_bytes: Its queries, keys and values.
        dense_bytes: Its scores in float32, which unfused attention holds at least once.
    """

    forward_bytes: int
    backward_bytes: int
    inputs_bytes: int
    dense_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The larger of both passes."""
        return max(self.forward_bytes, self.backward_bytes)

    @property
    def tells(self) -> bool:
        """False where keys are so few that fused attention may take as much as half the scores."""
        return self.dense_bytes > 2 * _COPIES_OF_INPUTS * self.inputs_bytes

    def require_fused(self) -> None:
        """Refuse attention that took as much room as unfused attention.

        Raises:
            UnfusedAttentionError: It took more than half of what the scores would take.
        """
        if self.tells and self.peak_bytes > self.dense_bytes / 2:
            raise UnfusedAttentionError(
                f"one layer's attention took {readable(self.peak_bytes)} of GPU memory, and all its"
                f" scores would take {readable(self.dense_bytes)}: the fused kernel did not run"
            )

    def summary(self) -> dict[str, Any]:
        """Return the figures as JSON-able data; `is_fused` is None where they cannot tell."""
        return {**asdict(self), "is_fused": True if self.tells else None}


class MeasuredMask:
    """Masked attention that notes the device memory its calls take.

    It resets the peak of torch's memory statistics.

    Args:
        attention: What attends.
        device: A CUDA device.
    """

    def __init__(self, attention: MaskedAttention, device: torch.device) -> None:
        self._attention = attention
        self._device = device
        self._took = {"forward": 0, "backward": 0}
        self._before: int | None = None
        self._inputs_bytes = self._dense_bytes = 0

    def __call__(
        self, anchors: Anchors, *, num_context: int, block_size: int, num_heads: int
    ) -> Attend:
        """See `train.attention.MaskedAttention`."""
        attend = self._attention(
            anchors, num_context=num_context, block_size=block_size, num_heads=num_heads
        )
        return partial(self._attend, attend)

    @property
    def memory(self) -> AttentionMemory:
        """The most that a call took so far."""
        return AttentionMemory(
            forward_bytes=self._took["forward"],
            backward_bytes=self._took["backward"],
            inputs_bytes=self._inputs_bytes,
            dense_bytes=self._dense_bytes,
        )

    def _attend(self, attend: Attend, q_BHQE: Tensor, k_BGTE: Tensor, v_BGTE: Tensor) -> Tensor:
        inputs = (q_BHQE, k_BGTE, v_BGTE)
        num_rows, num_heads, num_queries, _ = q_BHQE.shape
        self._dense_bytes = dense_attention_bytes(
            num_heads, num_queries=num_queries, num_keys=k_BGTE.shape[2], batch=num_rows
        )
        self._inputs_bytes = sum(one.numel() * one.element_size() for one in inputs)
        with self._measured():
            out_BHQE = attend(*inputs)
        if out_BHQE.requires_grad:
            out_BHQE.register_hook(self._begin)  # type: ignore[no-untyped-call]
            for one in inputs:
                if one.requires_grad:
                    one.register_hook(self._end_backward)  # type: ignore[no-untyped-call]
        return out_BHQE

    @contextmanager
    def _measured(self) -> Iterator[None]:
        self._begin()
        yield
        self._end("forward")

    def _begin(self, _grad: Tensor | None = None) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_allocated(self._device)

    def _end_backward(self, _grad: Tensor) -> None:
        # The first gradient of an input that is there ends it; what follows is not attention's.
        self._end("backward")

    def _end(self, name: str) -> None:
        if self._before is not None:
            took = torch.cuda.max_memory_allocated(self._device) - self._before
            self._took[name] = max(self._took[name], took)
            self._before = None
