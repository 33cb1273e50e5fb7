"""The target reading prompts and drafts, several texts at a time.

Shape suffixes: B rows (texts), M tokens or tree nodes that are read at once, S slots of the cache,
F = tapped layers * D, P tokens of a path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from train.frozen_target import View
from train.slot_cache import SlotCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from train.branches import Branches
    from train.frozen_target import FrozenTarget, TargetStates


@dataclass(frozen=True)
class Unseen:
    """Tapped states that the drafter has not been shown yet.

    Attributes:
        states_BPF: Those of each row first, then padding.
        counts: How many each row has.
    """

    states_BPF: Tensor
    counts: list[int]


class Reader:
    """A target that has read the same number of tokens of each text as `starts` says.

    Args:
        target: The target.
        prompts: Token ids, at least one each.
        room: Tokens of a text beyond its prompt that are read at most, rejected ones included.
    """

    def __init__(
        self, target: FrozenTarget, prompts: Sequence[Sequence[int]], *, room: int
    ) -> None:
        self.starts = [len(prompt) for prompt in prompts]
        self._target = target
        self._prompts = prompts
        self.cache = SlotCache(max(self.starts) + room)

    @property
    def next_positions(self) -> Tensor:
        """Position of the next token of each text, [B, 1]."""
        return torch.tensor(self.starts, device=self._target.device)[:, None]

    def read_prompts(self) -> tuple[Tensor, Unseen]:
        """Read all prompts; return the final states after each, [B, D], and the tapped states."""
        device, longest = self._target.device, max(self.starts)
        # What follows a prompt in its row is seen by nothing and overwritten by what is read next.
        padded = [[*prompt, *[prompt[-1]] * (longest - len(prompt))] for prompt in self._prompts]
        ids_BM = torch.tensor(padded, device=device)
        places_M = torch.arange(longest, device=device)
        places_BM = places_M.expand(len(padded), -1)
        causal_BMM = (places_M[:, None] >= places_M).expand(len(padded), -1, -1)
        self.cache.aim(places_BM, end=longest)
        view = View(places_BM, causal_BMM, key_positions_BS=places_BM)
        states = self._target.states(ids_BM, cache=self.cache, view=view)
        last_B = self.next_positions[:, 0] - 1
        rows_B = torch.arange(len(padded), device=device)
        return states.final_BTD[rows_B, last_B], Unseen(states.tapped_BTF, list(self.starts))

    def read(self, ids_BM: Tensor, *, branches: Branches) -> TargetStates:
        """Read a tree behind each text; nothing of it is kept until `keep` says what."""
        num_nodes = ids_BM.shape[1]
        end = max(self.starts) + num_nodes
        starts_B1 = self.next_positions
        slots_S = torch.arange(end, device=ids_BM.device)
        node_BS = slots_S - starts_B1
        is_tree_BS = (node_BS >= 0) & (node_BS < num_nodes)
        node_BS = node_BS.clamp(0, num_nodes - 1)
        in_tree_BMS = branches.sees_BMM.gather(2, node_BS[:, None].expand(-1, num_nodes, -1))
        tree_positions_BS = starts_B1 + branches.depths_BM.gather(1, node_BS)
        view = View(
            positions_BT=starts_B1 + branches.depths_BM,
            visible_BTS=(slots_S < starts_B1)[:, None] | (in_tree_BMS & is_tree_BS[:, None]),
            key_positions_BS=torch.where(is_tree_BS, tree_positions_BS, slots_S),
        )
        self.cache.aim(starts_B1 + torch.arange(num_nodes, device=ids_BM.device), end=end)
        return self._target.states(ids_BM, cache=self.cache, view=view)

    def keep(self, paths: Sequence[Sequence[int]], *, tapped_BMF: Tensor) -> Unseen:
        """Keep the nodes of each row's path, which may be empty, and forget the others.

        Returns:
            The tapped states of what is kept.
        """
        counts = [len(path) for path in paths]
        longest = max(counts)
        if all(list(path) == list(range(len(path))) for path in paths):
            kept_BPF = tapped_BMF[:, :longest]  # as in a chain: it is in place already
        else:
            padded = [[*path, *[0] * (longest - len(path))] for path in paths]
            nodes_BP = torch.tensor(padded, device=tapped_BMF.device)
            places_P = torch.arange(longest, device=tapped_BMF.device)
            # Padding lands behind what is kept, where the next tree goes.
            self.cache.move(self.next_positions + nodes_BP, to_BP=self.next_positions + places_P)
            kept_BPF = tapped_BMF.gather(
                1, nodes_BP[..., None].expand(-1, -1, tapped_BMF.shape[-1])
            )
        self.starts = [start + count for start, count in zip(self.starts, counts, strict=True)]
        return Unseen(kept_BPF, counts)
