from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from train.slot_weights import DecayedWeights, PathWeights


@pytest.mark.parametrize(("block_size", "gamma"), [(16, 7.0), (10, 5.0), (8, 4.0)])
def test_weights_decay_from_the_first_drafted_slot(block_size: int, gamma: float) -> None:
    has_label = torch.arange(block_size)[None] > 0
    weights = DecayedWeights(gamma)(torch.zeros(1, block_size), has_label_MK=has_label)[0].tolist()
    assert weights[0] == 0
    assert weights[1:] == pytest.approx([math.exp(-k / gamma) for k in range(block_size - 1)])


def test_path_weights_of_known_probabilities() -> None:
    probability = torch.tensor([[1.0, 0.5, 0.25, 1.0]])
    has_label = torch.tensor([[False, True, True, True]])
    weights = PathWeights(0.5)(-probability.log(), has_label_MK=has_label)[0].tolist()
    # Smoothed 0.75, 0.625, 1: reached with 0.75, 0.46875, 0.46875.
    assert weights == pytest.approx([0.0, 1.6875, 0.9375, 0.46875])


def test_a_slot_without_a_label_changes_no_other_weight() -> None:
    entropy = torch.tensor([[0.0, 1.0, 9.0, 2.0], [0.0, 1.0, 2.0, 0.0]])
    has_label = torch.tensor([[False, True, False, True], [False, True, True, False]])
    weights = PathWeights(0.5)(entropy, has_label_MK=has_label)
    assert weights[0, [1, 3]].tolist() == pytest.approx(weights[1, [1, 2]].tolist())
    assert weights[0, 2] == weights[1, 3] == 0


def by_the_definition(
    probabilities: list[float], has_label: list[bool], alpha: float
) -> list[float]:
    """Return D-PACE's weights of one block with loops over its labelled slots."""
    slots = [k for k, labelled in enumerate(has_label) if labelled]
    smooth = {k: (1 - alpha) * probabilities[k] + alpha for k in slots}
    reached = {k: math.prod(smooth[i] for i in slots if i <= k) for k in slots}
    return [
        sum(reached[m] for m in slots if m >= k) if has_label[k] else 0.0
        for k in range(len(has_label))
    ]


@given(
    slots=st.lists(st.tuples(st.floats(1e-6, 1.0), st.booleans()), min_size=1, max_size=15),
    alpha=st.floats(0.01, 1.0),
)
def test_path_weights_are_the_definition(slots: list[tuple[float, bool]], alpha: float) -> None:
    probabilities = [1.0] + [one for one, _ in slots]
    has_label = [False] + [labelled for _, labelled in slots]
    weights = PathWeights(alpha)(
        -torch.tensor([probabilities]).log(), has_label_MK=torch.tensor([has_label])
    )
    assert weights.dtype == torch.float32
    expected = by_the_definition(probabilities, has_label, alpha)
    assert weights[0].tolist() == pytest.approx(expected, rel=1e-4)
