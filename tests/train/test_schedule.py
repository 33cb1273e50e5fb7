from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.schedule import warmup_stable_cosine


@pytest.mark.parametrize(
    ("step", "share"),
    [
        pytest.param(0, 0.2, id="first-step-learns"),
        pytest.param(3, 0.8, id="end-of-warm-up"),
        pytest.param(4, 1.0, id="peak"),
        pytest.param(52, 0.55, id="halfway"),
        pytest.param(100, 0.1, id="end"),
        pytest.param(1000, 0.1, id="beyond-the-end"),
    ],
)
def test_warm_up_then_cosine(step: int, share: float) -> None:
    found = warmup_stable_cosine(
        step, num_steps=100, num_warmup_steps=4, num_decay_steps=96, final_fraction=0.1
    )
    assert found == pytest.approx(share)


@pytest.mark.parametrize(
    ("step", "share"),
    [
        pytest.param(3, 0.8, id="end-of-warm-up"),
        pytest.param(4, 1.0, id="peak"),
        pytest.param(80, 1.0, id="end-of-the-peak"),
        pytest.param(90, 0.5, id="halfway-down"),
        pytest.param(100, 0.0, id="end"),
    ],
)
def test_warm_up_then_stable_then_cosine(step: int, share: float) -> None:
    found = warmup_stable_cosine(step, num_steps=100, num_warmup_steps=4, num_decay_steps=20)
    assert found == pytest.approx(share)


@given(num_steps=st.integers(1, 200), data=st.data())
def test_rises_stays_and_falls(num_steps: int, data: st.DataObject) -> None:
    num_warmup_steps = data.draw(st.integers(0, num_steps))
    num_decay_steps = data.draw(st.integers(0, num_steps - num_warmup_steps))
    shares = [
        warmup_stable_cosine(
            step,
            num_steps=num_steps,
            num_warmup_steps=num_warmup_steps,
            num_decay_steps=num_decay_steps,
        )
        for step in range(num_steps)
    ]
    assert all(0 < share <= 1 for share in shares)
    rise, rest = shares[:num_warmup_steps], shares[num_warmup_steps:]
    assert rise == sorted(rise)
    assert rest == sorted(rest, reverse=True)
    num_stable_steps = len(rest) - num_decay_steps
    assert rest[: num_stable_steps + 1] == [1.0] * len(rest[: num_stable_steps + 1])


@pytest.mark.parametrize(
    ("num_steps", "num_warmup_steps", "num_decay_steps"),
    [(0, 0, 0), (5, 6, 0), (5, -1, 0), (5, 3, 3), (5, 0, -1)],
)
def test_warm_up_and_decay_must_fit(
    num_steps: int, num_warmup_steps: int, num_decay_steps: int
) -> None:
    with pytest.raises(ValueError, match="not fit"):
        warmup_stable_cosine(
            0,
            num_steps=num_steps,
            num_warmup_steps=num_warmup_steps,
            num_decay_steps=num_decay_steps,
        )
