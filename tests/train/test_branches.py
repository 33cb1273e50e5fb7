from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from train.branches import Branches
from train.draft_tree import DraftTree, chain


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    num_nodes = draw(st.integers(1, 40))
    parents = [0, *(draw(st.integers(0, node - 1)) for node in range(1, num_nodes))]
    return DraftTree([0] * num_nodes, parents)


def branches_of(tree: DraftTree) -> Branches:
    return Branches.of(
        torch.tensor([tree.parents]), torch.tensor([tree.depths]), max_depth=max(tree.depths)
    )


@given(trees())
def test_a_node_sees_itself_and_its_ancestors(tree: DraftTree) -> None:
    sees_MM = branches_of(tree).sees_BMM[0]
    for node in range(len(tree.parents)):
        seen, above = {node}, node
        while above:
            above = tree.parents[above]
            seen.add(above)
        assert set(sees_MM[node].nonzero()[:, 0].tolist()) == seen


@given(st.integers(1, 40))
def test_a_chain_is_a_tree_without_branches(num_nodes: int) -> None:
    found = Branches.chain(1, num_nodes, device=torch.device("cpu"))
    wanted = branches_of(chain([0] * num_nodes))
    assert torch.equal(found.depths_BM, wanted.depths_BM)
    assert torch.equal(found.sees_BMM, wanted.sees_BMM)
