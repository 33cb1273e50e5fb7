"""Which nodes of a tree see which while the target verifies it: each sees itself and its ancestors.

Shape suffixes: B rows (texts), M nodes.

Source: DDTree, arXiv 2604.12989.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Branches:
    """Which nodes of trees see which.

    Attributes:
        depths_BM: Distance from the root.
        sees_BMM: True where a node sees another: itself and its ancestors.
    """

    depths_BM: Tensor
    sees_BMM: Tensor

    @classmethod
    def of(cls, parents_BM: Tensor, depths_BM: Tensor, *, max_depth: int) -> Branches:
        """Follow parents, the root's being itself, in ever longer jumps."""
        num_rows, num_nodes = parents_BM.shape
        sees_BMM = torch.eye(num_nodes, dtype=torch.bool, device=parents_BM.device)
        sees_BMM = sees_BMM.expand(num_rows, -1, -1)
        jumps_BM = parents_BM
        for _ in range(max_depth.bit_length()):
            seen = sees_BMM.gather(1, jumps_BM[..., None].expand(-1, -1, num_nodes))
            sees_BMM = sees_BMM | seen
            jumps_BM = jumps_BM.gather(1, jumps_BM)
        return cls(depths_BM, sees_BMM)

    @classmethod
    def chain(cls, num_rows: int, num_nodes: int, *, device: torch.device) -> Branches:
        """Return the branches of chains: each node sees those before it."""
        places_M = torch.arange(num_nodes, device=device)
        sees_MM = places_M[:, None] >= places_M
        return cls(places_M.expand(num_rows, -1), sees_MM.expand(num_rows, -1, -1))
