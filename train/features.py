"""The target's states of a batch, computed once per sample where memory allows.

Shape suffixes: B rows, S tokens, T tokens of one sample, D hidden size, F = tapped layers * D,
W = F, or F + D with final states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from train.packing import documents_view

if TYPE_CHECKING:
    from torch import Tensor

    from train.batches import Batch
    from train.data import Sample
    from train.target import Target


@dataclass(frozen=True)
class Features:
    """What the training reads of the target, on the target's device.

    Padding holds states of padding tokens or zeros: nothing reads it.

    Attributes:
        tapped_BSF: Outputs of the tapped layers.
        final_BSD: States after the final norm; None when the store was not asked for them.
    """

    tapped_BSF: Tensor
    final_BSD: Tensor | None = None


class FeatureStore:
    """Runs the target over batches, and remembers what it gave.

    Args:
        target: The frozen target.
        budget_bytes: What may be kept on the target's device; beyond it samples are computed anew.
        with_final: Also give the states after the final norm, which distillation reads.
    """

    def __init__(self, target: Target, *, budget_bytes: int, with_final: bool = False) -> None:
        self._target = target
        self._free_bytes = budget_bytes
        self._with_final = with_final
        self._bytes_per_token = 1  # until the target has run once
        self._kept: dict[int, Tensor] = {}

    def features(self, batch: Batch) -> Features:
        """Return the states of a batch."""
        states_BSW = self._states(batch)
        if not self._with_final:
            return Features(states_BSW)
        num_final = self._target.config.hidden_size
        return Features(states_BSW[..., :-num_final], states_BSW[..., -num_final:])

    def _states(self, batch: Batch) -> Tensor:
        if all(sample.index in self._kept for sample in batch.samples):
            return self._from_memory(batch)
        device = self._target.device
        start_BS = batch.document_start_BS
        view = None if start_BS is None else documents_view(start_BS.to(device))
        states = self._target.states(batch.ids_BS.to(device), view=view)
        states_BSW = states.tapped_BTF
        if self._with_final:
            states_BSW = torch.cat((states_BSW, states.final_BTD), dim=-1)
        for row, sample in enumerate(batch.samples):
            self._keep(sample, states_BSW[row, : len(sample.ids)])
        return states_BSW

    def remember(self, batch: Batch) -> None:
        """Keep of a batch what `features` would keep; the target runs only if that is something."""
        fresh = [len(one.ids) for one in batch.samples if one.index not in self._kept]
        if fresh and min(fresh) * self._bytes_per_token <= self._free_bytes:
            self.features(batch)

    def _from_memory(self, batch: Batch) -> Tensor:
        kept = [self._kept[sample.index] for sample in batch.samples]
        states_BSW = kept[0].new_zeros(*batch.ids_BS.shape, kept[0].shape[-1])
        for row, states_TW in enumerate(kept):
            states_BSW[row, : len(states_TW)] = states_TW
        return states_BSW

    def _keep(self, sample: Sample, states_TW: Tensor) -> None:
        size = states_TW.numel() * states_TW.element_size()
        self._bytes_per_token = size // len(states_TW)
        if sample.index not in self._kept and size <= self._free_bytes:
            self._free_bytes -= size
            self._kept[sample.index] = states_TW.clone()  # a view would keep the whole batch
