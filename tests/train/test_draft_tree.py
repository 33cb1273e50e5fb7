"""The tree of drafts, without any model."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.draft_tree import DraftTree, Round, best_tree, chain


def paths_of(tree: DraftTree) -> list[tuple[int, ...]]:
    """Tokens from below the root to each node."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]


@st.composite
def candidates(draw: st.DrawFn) -> list[list[float]]:
    """Falling log-probabilities for a few depths."""
    depths = draw(st.integers(1, 4))
    width = draw(st.integers(1, 4))
    chances = st.lists(st.floats(0.01, 1.0), min_size=width, max_size=width)
    return [sorted((math.log(p) for p in draw(chances)), reverse=True) for _ in range(depths)]


@given(candidates(), st.integers(1, 40))
def test_tree_is_the_best_of_all_prefix_closed_ones(scores: list[list[float]], budget: int) -> None:
    tokens = [[10 * depth + rank for rank in range(len(row))] for depth, row in enumerate(scores)]
    tree = best_tree(5, scores=scores, tokens=tokens, budget=budget)
    found = paths_of(tree)

    def score(path: tuple[int, ...]) -> float:
        return sum(scores[depth][token % 10] for depth, token in enumerate(path))

    every = [
        path for depth in range(1, len(scores) + 1) for path in itertools.product(*tokens[:depth])
    ]
    assert tree.tokens[0] == 5
    assert len(found) == len(set(found)) == min(budget, len(every))
    assert all(path[:-1] in {(), *found} for path in found)
    # The best prefix-closed set is the set of the best paths, since no path beats its own prefix.
    best = sorted(map(score, every), reverse=True)[: len(found)]
    assert sorted(map(score, found), reverse=True) == pytest.approx(best)


def test_one_candidate_a_depth_is_the_chain() -> None:
    scores = [[-0.5], [-3.0], [-0.1]]
    tree = best_tree(7, scores=scores, tokens=[[1], [2], [3]], budget=3)
    assert tree == chain([7, 1, 2, 3])
    assert tree.depths == [0, 1, 2, 3]


def test_among_equal_scores_the_node_that_was_known_first_is_taken() -> None:
    tree = best_tree(7, scores=[[0.0] * 3] * 2, tokens=[[1, 2, 3], [4, 5, 6]], budget=5)
    assert tree == DraftTree(tokens=[7, 1, 2, 4, 3, 4], parents=[0, 0, 0, 1, 0, 2])


TREE = DraftTree(tokens=[9, 1, 2, 1, 3, 1], parents=[0, 0, 0, 1, 3, 2])
"""9 -> 1 -> 1 -> 3, and 9 -> 2 -> 1."""


@pytest.mark.parametrize(
    ("wanted", "stops", "nodes", "emitted", "accepted"),
    [
        pytest.param([5, 0, 0, 0, 0, 0], (), [0], [5], 0, id="nothing-right"),
        pytest.param([1, 1, 0, 3, 8, 0], (), [0, 1, 3, 4], [1, 1, 3, 8], 3, id="to-a-leaf"),
        pytest.param([2, 0, 1, 0, 0, 6], (), [0, 2, 5], [2, 1, 6], 2, id="second-branch"),
        pytest.param([1, 2, 0, 0, 0, 0], (), [0, 1], [1, 2], 1, id="child-of-another-node"),
        pytest.param([1, 1, 0, 3, 8, 0], (1,), [0], [1], 1, id="stop-among-the-accepted"),
        pytest.param([1, 7, 0, 0, 0, 0], (7,), [0, 1], [1, 7], 1, id="stop-of-the-target"),
    ],
)
def test_walk_follows_the_target(
    wanted: list[int], stops: tuple[int, ...], nodes: list[int], emitted: list[int], accepted: int
) -> None:
    walk = TREE.walk(wanted, stop_ids=stops)
    assert (walk.nodes, walk.emitted) == (nodes, emitted)
    assert walk.outcome == Round(num_accepted=accepted, num_emitted=len(emitted))
