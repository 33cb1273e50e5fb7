from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

from tests.train.tiny_training import config_with, dataset_of, new_pair, tiny_target
from train.course import Course
from train.ledger import Ledger
from train.loop import train

if TYPE_CHECKING:
    from train.data import Sample
    from train.loop import StepTaken
    from train.target import Target

DECAY = 0.75


@pytest.fixture(scope="module", name="tiny")
def _tiny() -> Target:
    return tiny_target()


@pytest.fixture(scope="module", name="samples")
def _samples(tiny: Target) -> list[Sample]:
    return dataset_of(tiny).samples


def trained(course: Course) -> list[torch.Tensor]:
    """Train, and return the norm's weights after each step."""
    history = []

    def remember(_taken: StepTaken) -> None:
        history.append(course.pair.drafter.norm.weight.detach().clone())

    stop = SimpleNamespace(requested=False)
    ledger = Ledger(course.plan.num_steps, every_steps=1, report=lambda _: None)
    train(course, ledger=ledger, stop=stop, after_step=[remember])
    return history


def test_the_average_is_of_the_weights_after_each_step(tiny: Target, samples: list[Sample]) -> None:
    config = config_with(epochs=2, micro_batch=1, ema_decay=DECAY)
    course = Course.of(config, pair=new_pair(tiny), samples=samples)
    history = trained(course)
    wanted = history[0]
    for weight in history[1:]:
        wanted = DECAY * wanted + (1 - DECAY) * weight
    assert course.trained_drafter is not course.pair.drafter
    torch.testing.assert_close(course.trained_drafter.norm.weight.detach(), wanted)


def test_averaging_does_not_change_the_training(tiny: Target, samples: list[Sample]) -> None:
    courses = [
        Course.of(config_with(epochs=2, ema_decay=decay), pair=new_pair(tiny), samples=samples)
        for decay in (0.0, DECAY)
    ]
    plain, averaged = (trained(course) for course in courses)
    assert all(map(torch.equal, plain, averaged))
    assert courses[0].trained_drafter is courses[0].pair.drafter


def test_a_saved_average_continues(tiny: Target, samples: list[Sample]) -> None:
    config = config_with(ema_decay=DECAY)
    first, second = (Course.of(config, pair=new_pair(tiny), samples=samples) for _ in range(2))
    trained(first)
    assert first.average is not None
    assert second.average is not None
    second.average.load_state_dict(copy.deepcopy(first.average.state_dict()))
    for course in (first, second):
        assert course.average is not None
        course.average.update_parameters(new_pair(tiny).drafter)
    pairs = zip(
        first.trained_drafter.parameters(), second.trained_drafter.parameters(), strict=True
    )
    assert all(torch.equal(mine, yours) for mine, yours in pairs)
