"""The tree of drafts that one pass of the target verifies; a chain is a tree without branches.

Source: DDTree, arXiv 2604.12989.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass(frozen=True)
class Round:
    """One proposal of the drafter and its verification by the target.

    Attributes:
        num_accepted: Draft tokens that the target would have said, up to a stop token.
        num_emitted: Those, and the target's own next token unless a stop token came before it.
    """

    num_accepted: int
    num_emitted: int


@dataclass(frozen=True)
class Walk:
    """The way that the target's own choices take through a tree.

    Attributes:
        nodes: The root, then each accepted node whose token is followed by another.
        emitted: The target's choices along it, up to a stop token.
        outcome: Both counted.
    """

    nodes: list[int]
    emitted: list[int]
    outcome: Round


@dataclass(frozen=True)
class DraftTree:
    """Draft tokens behind a root, the newest token, which the target has not read yet.

    Attributes:
        tokens: Token of each node, the root's first; parents stand before children.
        parents: Index of each node's parent; the root is its own.
    """

    tokens: list[int]
    parents: list[int]

    @cached_property
    def depths(self) -> list[int]:
        """Distance of each node from the root."""
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return depths

    def walk(self, wanted: Sequence[int], *, stop_ids: Collection[int]) -> Walk:
        """Follow the target from the root for as long as its choice is among the drafts.

        Args:
            wanted: What the target says after each node.
            stop_ids: Tokens that end the answer.
        """
        nodes, emitted, num_accepted = [0], [wanted[0]], 0
        while True:
            child = self._children.get((nodes[-1], emitted[-1]))
            num_accepted += child is not None
            if child is None or emitted[-1] in stop_ids:
                return Walk(nodes, emitted, Round(num_accepted, num_emitted=len(emitted)))
            nodes.append(child)
            emitted.append(wanted[child])

    @cached_property
    def _children(self) -> dict[tuple[int, int], int]:
        edges = zip(self.parents[1:], self.tokens[1:], strict=True)
        return {edge: child for child, edge in enumerate(edges, start=1)}


def chain(tokens: list[int]) -> DraftTree:
    """Return the tree without branches: each token is the parent of the next."""
    return DraftTree(tokens, parents=[0, *range(len(tokens) - 1)])


def best_tree(
    root: int, *, scores: Sequence[Sequence[float]], tokens: Sequence[Sequence[int]], budget: int
) -> DraftTree:
    """Return the most probable drafts, where each is there only with all before it.

    A path's score is the sum of its tokens' scores, depths being independent of one another. It
    only falls from a node to its child and to its next sibling, so taking the best node that is
    known, `budget` times, gives the best tree.

    Args:
        root: Token of the root.
        scores: For each depth below the root, log-probabilities of its likeliest tokens, falling.
        tokens: Those tokens.
        budget: Most nodes below the root.
    """
    found, parents, depths = [root], [0], [0]
    # A node's children are known once it is taken. Among equal scores the older goes first.
    heap = [(-scores[0][0], 0, 0, 0)]
    age = 0
    while heap and len(found) <= budget:
        cost, _, parent, rank = heapq.heappop(heap)
        depth = depths[parent]
        node = len(found)
        found.append(tokens[depth][rank])
        parents.append(parent)
        depths.append(depth + 1)
        if rank + 1 < len(scores[depth]):
            age += 1
            sibling = cost + scores[depth][rank] - scores[depth][rank + 1]
            heapq.heappush(heap, (sibling, age, parent, rank + 1))
        if depth + 1 < len(scores):
            age += 1
            heapq.heappush(heap, (cost - scores[depth + 1][0], age, node, 0))
    return DraftTree(found, parents)
