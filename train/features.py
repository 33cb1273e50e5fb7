"""The target's tapped states of a batch, computed once per sample where memory allows.

Shape suffixes: B rows, S tokens, F = tapped layers * D.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from train.data import Batch, Sample
    from train.target import Target


class FeatureStore:
    """Runs the target over batches, and remembers what it gave.

    Args:
        target: The frozen target.
        budget_bytes: What may be kept on the target's device; beyond it samples are computed anew.
    """

    def __init__(self, target: Target, *, budget_bytes: int) -> None:
        self._target = target
        self._free_bytes = budget_bytes
        self._kept: dict[int, Tensor] = {}

    def features(self, batch: Batch) -> Tensor:
        """Return the states [B, S, F] of a batch on the target's device.

        Padding holds states of padding tokens or zeros: nothing reads it.
        """
        if all(sample.index in self._kept for sample in batch.samples):
            return self._from_memory(batch)
        features_BSF = self._target.states(batch.ids_BS.to(self._target.device)).tapped_BTF
        for row, sample in enumerate(batch.samples):
            self._keep(sample, features_BSF[row, : len(sample.ids)])
        return features_BSF

    def _from_memory(self, batch: Batch) -> Tensor:
        kept = [self._kept[sample.index] for sample in batch.samples]
        features_BSF = kept[0].new_zeros(*batch.ids_BS.shape, kept[0].shape[-1])
        for row, features_TF in enumerate(kept):
            features_BSF[row, : len(features_TF)] = features_TF
        return features_BSF

    def _keep(self, sample: Sample, features_TF: Tensor) -> None:
        size = features_TF.numel() * features_TF.element_size()
        if sample.index not in self._kept and size <= self._free_bytes:
            self._free_bytes -= size
            self._kept[sample.index] = features_TF.clone()  # a view would keep the whole batch
