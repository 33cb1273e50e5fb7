"""Ways to propose tokens to the target: none, a chain, or a tree.

Shape suffixes: B rows (texts), K or Q slots per block, M nodes of a tree, C context tokens new to
the drafter, S context tokens in its cache and the block (T for `Attend`), D hidden size, V
vocabulary, H query heads, G key/value heads, E head dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch
from torch.nn import functional

from train.branches import Branches
from train.draft_tree import DraftTree, best_tree, chain
from train.drafter import Attend, ContextCache, attend_to_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from train.drafter import Drafter
    from train.frozen_target import FrozenTarget
    from train.reader import Unseen


_LEAST_SCORE = -1e4


@dataclass(frozen=True)
class Proposal:
    """A tree for each text.

    Attributes:
        ids_BM: Tokens of the nodes, the root's first.
        branches: Which sees which.
        shapes: The trees on the host; None where all are chains, whose tokens are `ids_BM`.
    """

    ids_BM: Tensor
    branches: Branches
    shapes: list[DraftTree] | None = None

    def trees(self, ids: Sequence[list[int]]) -> list[DraftTree]:
        """Return the trees, given `ids_BM` on the host."""
        return self.shapes or [chain(tokens) for tokens in ids]


class Proposer(Protocol):
    """Proposes for a group of texts from their beginning to their end."""

    def propose(self, anchors_B1: Tensor, *, starts_B1: Tensor, unseen: Unseen) -> Proposal:
        """Return what may follow.

        Args:
            anchors_B1: The newest token of each text, which the target has not read.
            starts_B1: Its position.
            unseen: Tapped states of the tokens before it since the last call.
        """
        ...


class Strategy(Protocol):
    """A way to propose."""

    @property
    def num_nodes(self) -> int:
        """Tokens that the target reads at once, the anchor included."""
        ...

    def begin(self, target: FrozenTarget, *, num_texts: int) -> Proposer:
        """Return a proposer for new texts."""
        ...


@dataclass(frozen=True)
class Alone:
    """Propose nothing: the target decodes alone."""

    @property
    def num_nodes(self) -> int:
        """Tokens that the target reads at once: the newest."""
        return 1

    def begin(self, target: FrozenTarget, *, num_texts: int) -> Proposer:
        """Return a proposer for new texts."""
        del target, num_texts
        return self

    def propose(self, anchors_B1: Tensor, *, starts_B1: Tensor, unseen: Unseen) -> Proposal:
        """Return the anchors."""
        del starts_B1, unseen
        return Proposal(anchors_B1, Branches.chain(*anchors_B1.shape, device=anchors_B1.device))


@dataclass(frozen=True)
class Chain:
    """Propose the drafter's most likely token of each slot."""

    drafter: Drafter

    @property
    def num_nodes(self) -> int:
        """Tokens that the target reads at once: a block."""
        return self.drafter.config.block_size

    def begin(self, target: FrozenTarget, *, num_texts: int) -> Proposer:
        """Return a proposer for new texts."""
        return _ChainProposer(_Drafts(target, self.drafter, num_texts=num_texts))


@dataclass(frozen=True)
class Tree:
    """Propose the most probable paths through the drafter's slots.

    Args:
        drafter: The drafter.
        budget: Draft tokens that the target verifies at once.
    """

    drafter: Drafter
    budget: int

    @property
    def num_nodes(self) -> int:
        """Tokens that the target reads at once: the budget and the anchor."""
        return self.budget + 1

    def begin(self, target: FrozenTarget, *, num_texts: int) -> Proposer:
        """Return a proposer for new texts."""
        return _TreeProposer(_Drafts(target, self.drafter, num_texts=num_texts), self.budget)


class _Drafts:
    """A drafter with what it has been shown of each text."""

    def __init__(self, target: FrozenTarget, drafter: Drafter, *, num_texts: int) -> None:
        self._target = target
        self._drafter = drafter
        config = drafter.config
        shape = (num_texts, config.block_size)
        self.masks_BK = torch.full(shape, config.mask_token_id, device=target.device)
        embedded = target.embed(self.masks_BK)
        self._cache = ContextCache(config, max_tokens=2 * config.block_size, like=embedded)
        self._seen_BS: Tensor | None = None

    def logits(self, anchors_B1: Tensor, *, starts_B1: Tensor, unseen: Unseen) -> Tensor:
        """Return the drafter's logits of the slots after the anchor, [B, K - 1, V]."""
        block_BK = torch.cat((anchors_B1, self.masks_BK[:, 1:]), dim=1)
        num_new, num_slots = unseen.states_BPF.shape[1], block_BK.shape[1]
        counts_B1 = torch.tensor(unseen.counts, device=starts_B1.device)[:, None]
        places_C = torch.arange(num_new, device=starts_B1.device)
        slots_K = torch.arange(num_slots, device=starts_B1.device)
        hidden_BKD = self._drafter(
            self._target.embed(block_BK),
            target_hidden_BCF=unseen.states_BPF,
            positions_BT=torch.cat((starts_B1 - counts_B1 + places_C, starts_B1 + slots_K), dim=1),
            attend=self._attention(places_C < counts_B1, unseen.counts),
            cache=self._cache,
        )
        return self._target.logits(hidden_BKD[:, 1:])

    def _attention(self, is_real_BC: Tensor, counts: list[int]) -> Attend:
        """Hide the padding of rows to which less was added than to others, now or earlier."""
        if self._seen_BS is None:
            if min(counts) == is_real_BC.shape[1]:
                return attend_to_all
            earlier = is_real_BC.new_ones(is_real_BC.shape[0], self._cache.num_tokens)
            self._seen_BS = earlier
        self._seen_BS = torch.cat((self._seen_BS, is_real_BC), dim=1)
        block_BK = torch.ones_like(self.masks_BK, dtype=torch.bool)
        return AttendToSeen(torch.cat((self._seen_BS, block_BK), dim=1))


@dataclass(frozen=True)
class AttendToSeen:
    """Attention in which a row's queries see the same keys."""

    seen_BS: Tensor

    def __call__(self, q_BHQE: Tensor, k_BGTE: Tensor, v_BGTE: Tensor) -> Tensor:
        """Return the attended values [B, H, Q, E]; the keys are S."""
        return functional.scaled_dot_product_attention(
            q_BHQE, k_BGTE, v_BGTE, attn_mask=self.seen_BS[:, None, None], enable_gqa=True
        )


@dataclass(frozen=True)
class _ChainProposer:
    drafts: _Drafts

    def propose(self, anchors_B1: Tensor, *, starts_B1: Tensor, unseen: Unseen) -> Proposal:
        logits_BKV = self.drafts.logits(anchors_B1, starts_B1=starts_B1, unseen=unseen)
        ids_BM = torch.cat((anchors_B1, logits_BKV.argmax(dim=-1)), dim=1)
        return Proposal(ids_BM, self._branches)

    @cached_property
    def _branches(self) -> Branches:
        masks_BK = self.drafts.masks_BK
        return Branches.chain(*masks_BK.shape, device=masks_BK.device)


@dataclass(frozen=True)
class _TreeProposer:
    drafts: _Drafts
    budget: int

    def propose(self, anchors_B1: Tensor, *, starts_B1: Tensor, unseen: Unseen) -> Proposal:
        logits_BKV = self.drafts.logits(anchors_B1, starts_B1=starts_B1, unseen=unseen)
        width = min(self.budget, logits_BKV.shape[-1])
        # Only the candidates cross to the host. Costs are added there: none may be infinite.
        top = logits_BKV.float().log_softmax(dim=-1).clamp(min=_LEAST_SCORE).topk(width, dim=-1)
        roots = anchors_B1[:, 0].tolist()
        texts = zip(roots, top.values.tolist(), top.indices.tolist(), strict=True)
        trees = [
            best_tree(root, scores=scores, tokens=tokens, budget=self.budget)
            for root, scores, tokens in texts
        ]
        return self._proposal(trees, device=anchors_B1.device)

    def _proposal(self, trees: list[DraftTree], *, device: torch.device) -> Proposal:
        """Bring trees to one size; what is added is a child of the root that no walk reaches."""
        rows = [
            [
                [*tree.tokens, *[tree.tokens[0]] * (self.budget + 1 - len(tree.tokens))],
                [*tree.parents, *[0] * (self.budget + 1 - len(tree.tokens))],
                [*tree.depths, *[1] * (self.budget + 1 - len(tree.tokens))],
            ]
            for tree in trees
        ]
        ids_BM, parents_BM, depths_BM = torch.tensor(rows, device=device).unbind(dim=1)
        max_depth = max(max(tree.depths) for tree in trees)
        branches = Branches.of(parents_BM, depths_BM, max_depth=max_depth)
        return Proposal(ids_BM, branches, shapes=trees)
