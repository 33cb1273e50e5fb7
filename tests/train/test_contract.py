"""What a checkpoint relies on is told apart when it changes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.train.tiny_run import make_model, make_tokenizer
from train.contract import data_fingerprint, tokenizer_fingerprint, weights_fingerprint
from train.data import Sample
from train.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SAMPLES = (
    Sample(0, [1, 2, 3, 4], [False, True, True, True]),
    Sample(2, [5, 6, 7], [False, True, True]),
)


def changed(place: int, **changes: object) -> list[Sample]:
    """The samples, one of them with other values."""
    samples = list(SAMPLES)
    samples[place] = dataclasses.replace(samples[place], **changes)  # type: ignore[arg-type]
    return samples


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(changed(1, ids=[5, 6, 8]), id="token"),
        pytest.param(changed(0, supervised=[False, False, True, True]), id="mask"),
        pytest.param(changed(1, index=1), id="index"),
        pytest.param(changed(0, document_starts=(0, 2)), id="documents"),
        pytest.param(SAMPLES[::-1], id="order"),
        pytest.param(SAMPLES[:1], id="fewer"),
        pytest.param([*SAMPLES, SAMPLES[0]], id="more"),
        pytest.param(
            [Sample(0, [1, 2, 3], [False, True, True]), Sample(2, [4, 5, 6, 7], [True] * 4)],
            id="borders",
        ),
    ],
)
def test_other_data_has_another_fingerprint(samples: Sequence[Sample]) -> None:
    assert data_fingerprint(list(SAMPLES)) == data_fingerprint([*SAMPLES])
    assert data_fingerprint(samples) != data_fingerprint(SAMPLES)


def new_target() -> Target:
    return Target(make_model(), make_tokenizer(), layer_ids=(1, 4))


def flip_a_bit(target: Target) -> None:
    weight = target.model.model.layers[3].mlp.down_proj.weight.data
    weight[-1, -1] = -weight[-1, -1]


def swap_layers(target: Target) -> None:
    one, other = target.model.model.layers[1].mlp, target.model.model.layers[2].mlp
    one.up_proj.weight.data, other.up_proj.weight.data = (
        other.up_proj.weight.data,
        one.up_proj.weight.data,
    )


@pytest.mark.parametrize("change", [flip_a_bit, swap_layers])
def test_other_weights_have_another_fingerprint(change: Callable[[Target], None]) -> None:
    target = new_target()
    before = weights_fingerprint(target)
    assert weights_fingerprint(new_target()) == before
    change(target)
    assert weights_fingerprint(target) != before


def test_another_chat_template_is_another_tokenizer() -> None:
    target = new_target()
    before = tokenizer_fingerprint(target)
    target.tokenizer.chat_template += " "
    assert tokenizer_fingerprint(target) != before
