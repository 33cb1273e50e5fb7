from __future__ import annotations

import pytest

from train.layer_ids import tapped_layer_ids


@pytest.mark.parametrize(
    ("num_layers", "five", "three"),
    [
        (18, (1, 4, 8, 12, 15), (1, 8, 15)),
        (24, (1, 6, 11, 16, 21), (1, 11, 21)),
        (28, (1, 7, 13, 19, 25), (1, 13, 25)),
        (30, (1, 8, 14, 20, 27), (1, 14, 27)),
        (32, (1, 8, 15, 22, 29), (1, 15, 29)),
        (36, (1, 9, 17, 25, 33), (1, 17, 33)),
        (48, (1, 12, 23, 34, 45), (1, 23, 45)),
        (64, (1, 16, 31, 46, 61), (1, 31, 61)),
    ],
)
def test_tapped_layers_are_the_published_ones(
    num_layers: int, five: tuple[int, ...], three: tuple[int, ...]
) -> None:
    assert tapped_layer_ids(num_layers, 5) == five
    assert tapped_layer_ids(num_layers, 3) == three
    assert tapped_layer_ids(num_layers, 1) == (num_layers // 2,)


def test_tapped_layers_are_different_and_never_the_last() -> None:
    for num_layers in range(3, 40):
        for num_taps in range(1, max(1, num_layers - 3) + 1):
            ids = tapped_layer_ids(num_layers, num_taps)
            assert list(ids) == sorted(set(ids))
            assert ids[-1] < num_layers - 1


@pytest.mark.parametrize(("num_layers", "num_taps"), [(2, 1), (6, 4), (30, 0)])
def test_too_many_taps_are_refused(num_layers: int, num_taps: int) -> None:
    with pytest.raises(ValueError, match=f"cannot tap {num_taps} layers"):
        tapped_layer_ids(num_layers, num_taps)
