"""Keys and values of the target in slots, so that rejected tokens can be overwritten.

Shape suffixes: B rows, T tokens that are read at once, S slots, G key/value heads, E head dim, P
tokens of a path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import Cache

if TYPE_CHECKING:
    from torch import Tensor


class SlotCache(Cache):
    """A cache of transformers whose rows hold texts of different lengths.

    Nothing is copied when it grows, and a slot is free as soon as nobody looks at it any more.

    Args:
        num_slots: Most tokens of a row, rejected ones included.
    """

    def __init__(self, num_slots: int) -> None:
        super().__init__(layers=[])
        self._num_slots = num_slots
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}
        self._place: tuple[Tensor, Tensor] | None = None
        self._end = 0

    def aim(self, slots_BT: Tensor, *, end: int) -> None:
        """Say where the tokens of the next call of the target go.

        Args:
            slots_BT: A slot for each token of each row.
            end: Slots that are returned, counted from the first.
        """
        rows_B1 = torch.arange(slots_BT.shape[0], device=slots_BT.device)[:, None]
        self._place = (rows_B1, slots_BT)
        self._end = end

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the keys and values [B, G, T, E] of a layer; return those of all slots to `end`.

        Raises:
            RuntimeError: Nobody said where they go.
        """
        if self._place is None:
            raise RuntimeError("aim the cache before the target reads")
        rows_B1, slots_BT = self._place
        if layer_idx not in self._buffers:
            self._buffers[layer_idx] = self._new_buffers(key_states, value_states)
        buffers = self._buffers[layer_idx]
        for buffer_BGSE, new_BGTE in zip(buffers, (key_states, value_states), strict=True):
            buffer_BGSE[rows_B1, :, slots_BT] = new_BGTE.transpose(1, 2)
        keys_BGSE, values_BGSE = buffers
        return keys_BGSE[:, :, : self._end], values_BGSE[:, :, : self._end]

    def move(self, sources_BP: Tensor, *, to_BP: Tensor) -> None:
        """Copy slots to others, in every layer; sources are read before anything is written."""
        rows_B1 = torch.arange(sources_BP.shape[0], device=sources_BP.device)[:, None]
        for buffers in self._buffers.values():
            for buffer_BGSE in buffers:
                buffer_BGSE[rows_B1, :, to_BP] = buffer_BGSE[rows_B1, :, sources_BP]

    def layer(self, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Return keys and values [B, G, S, E] of a layer."""
        return self._buffers[layer_idx]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0: positions are always given, so that nobody needs to count."""
        del layer_idx
        return 0

    def _new_buffers(self, *like_BGTE: Tensor) -> tuple[Tensor, Tensor]:
        # Zeros: a slot that is hidden has weight 0 in the sum, and 0 times nan is nan.
        keys, values = (
            one.new_zeros(*one.shape[:2], self._num_slots, one.shape[3]) for one in like_BGTE
        )
        return keys, values
