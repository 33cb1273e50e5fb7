from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

from tests.train.tiny_training import (
    LAYERS,
    config_with,
    dataset_of,
    new_pair,
    tiny_target,
)
from train.batches import collate
from train.config import (
    LogConfig,
    TrainConfig,
)
from train.course import Course, Pair
from train.features import FeatureStore
from train.ledger import Ledger
from train.loop import StepTaken, train, train_step
from train.objective import objective_of
from train.optimizer import build_optimizer
from train.plan import plan_of
from train.windows import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.data import Sample
    from train.ledger import StepReport
    from train.objective import Rows
    from train.target import Target


@pytest.fixture(scope="module", name="tiny")
def _tiny() -> Target:
    return tiny_target()


@pytest.fixture(scope="module", name="samples")
def _samples(tiny: Target) -> list[Sample]:
    return dataset_of(tiny).samples


def run(
    config: TrainConfig, target: Target, samples: Sequence[Sample], *, stop_after: int = 10**9
) -> tuple[list[StepReport], Pair]:
    pair = new_pair(target)
    reports: list[StepReport] = []
    stop = SimpleNamespace(requested=False)

    def report(one: StepReport) -> None:
        reports.append(one)
        stop.requested = one.step >= stop_after

    course = Course.of(config, pair=pair, samples=samples)
    ledger = Ledger(course.plan.num_steps, every_steps=config.log.every_steps, report=report)
    train(course, ledger=ledger, stop=stop)
    assert ledger.outcome().steps == reports[-1].step
    return reports, pair


def test_overfitting_one_batch_lowers_the_loss(tiny: Target, samples: list[Sample]) -> None:
    config = config_with(epochs=40, num_anchors=16)
    reports, _ = run(config, tiny, samples[:2])
    assert len(reports) == 40
    assert reports[-1].sums.loss < 0.5 * reports[0].sums.loss
    assert reports[-1].sums.acceptance_length > 1.5


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"loss": "dpace"}, id="dpace"),
        pytest.param({"loss": "distill", "peak_lr": 2e-2}, id="distill"),
        pytest.param(
            {"loss": "dpace-distill", "peak_lr": 2e-2, "cache_features_bytes": 10**7},
            id="both-cached",
        ),
        # Steps of a matrix this small are a fifth of AdamW's first ones.
        pytest.param({"optimizer": "muon", "peak_lr": 2e-2}, id="muon"),
        pytest.param({"schedule": "wsd"}, id="wsd"),
    ],
)
def test_every_way_of_training_learns(
    tiny: Target, samples: list[Sample], settings: dict[str, Any]
) -> None:
    config = config_with(**({"epochs": 30, "num_anchors": 16} | settings))
    reports, _ = run(config, tiny, samples[:2])
    assert reports[-1].sums.loss < 0.7 * reports[0].sums.loss


def test_same_seed_same_losses_and_weights(tiny: Target, samples: list[Sample]) -> None:
    first, second, other = (
        run(config_with(epochs=2, seed=seed), tiny, samples) for seed in (7, 7, 8)
    )
    losses = [[one.sums.loss for one in reports] for reports, _ in (first, second, other)]
    assert losses[0] == losses[1] != losses[2]
    for mine, yours in zip(
        first[1].drafter.parameters(), second[1].drafter.parameters(), strict=True
    ):
        assert torch.equal(mine, yours)


def test_remembered_features_change_nothing(tiny: Target, samples: list[Sample]) -> None:
    without, _ = run(config_with(epochs=3), tiny, samples)
    with_memory, _ = run(config_with(epochs=3, cache_features_bytes=10**7), tiny, samples)
    for mine, yours in zip(without, with_memory, strict=True):
        assert mine.sums.loss == pytest.approx(yours.sums.loss, rel=1e-4)


def test_checkpointed_layers_change_nothing(tiny: Target, samples: list[Sample]) -> None:
    plain, _ = run(config_with(), tiny, samples)
    config = config_with(checkpoint_layers=True)
    pair = new_pair(tiny)
    pair.drafter.checkpoint_layers = True
    reports: list[StepReport] = []
    stop = SimpleNamespace(requested=False)
    course = Course.of(config, pair=pair, samples=samples)
    ledger = Ledger(course.plan.num_steps, every_steps=1, report=reports.append)
    train(course, ledger=ledger, stop=stop)
    assert [one.sums.loss for one in reports] == [one.sums.loss for one in plain]


def window_of(pair: Pair, groups: list[list[Sample]], *, rows: int) -> list[Rows]:
    store = FeatureStore(pair.target, budget_bytes=0)
    batches = [collate(group, rows=rows, buckets=(96,), eos_id=2) for group in groups]
    return [rows_of(batch, store.features(batch), seed=0, epoch=0) for batch in batches]


def test_accumulated_step_equals_the_step_on_the_whole_batch(
    tiny: Target, samples: list[Sample]
) -> None:
    """Compared by the gradient: AdamW's steps are the same for every multiple of it."""
    config = config_with()
    gradients, weights, losses = [], [], []
    for groups, rows in (([samples[:4]], 4), ([samples[:1], samples[1:4]], 3)):
        pair = new_pair(tiny)
        total, grad_norm = train_step(
            pair,
            optimizer=build_optimizer(pair.drafter, peak_lr=1e-3),
            window=window_of(pair, groups, rows=rows),
            objective=objective_of(config, device=tiny.device, num_anchors=8),
            grad_clip=1e9,
        )
        losses.append(total.loss)
        parameters = list(pair.drafter.parameters())
        gradients.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))
        weights.append(torch.cat([p.detach().flatten() for p in parameters]))
        assert float(grad_norm) == pytest.approx(float(gradients[-1].norm()), rel=1e-5)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("accumulation", [2, 3, 5])
def test_accumulated_epoch_trains_on_every_label(
    tiny: Target, samples: list[Sample], accumulation: int
) -> None:
    one_by_one, _ = run(config_with(micro_batch=1), tiny, samples)
    reports, _ = run(config_with(micro_batch=1, accumulation=accumulation), tiny, samples)
    assert len(reports) == math.ceil(len(one_by_one) / accumulation)
    mine, theirs = (
        [sum(int(one.sums.num_labels_K.sum()) for one in each), sum(one.num_tokens for one in each)]
        for each in (reports, one_by_one)
    )
    assert mine == theirs


def test_window_without_a_label_leaves_the_weights_alone(
    tiny: Target, samples: list[Sample]
) -> None:
    pair = new_pair(tiny)
    before = [parameter.detach().clone() for parameter in pair.drafter.parameters()]
    window = window_of(pair, [samples[:1]], rows=1)
    window[0].loss_mask_BS.zero_()
    train_step(
        pair,
        optimizer=build_optimizer(pair.drafter, peak_lr=1e-3),
        window=window,
        objective=objective_of(config_with(), device=tiny.device, num_anchors=4),
        grad_clip=1.0,
    )
    assert all(map(torch.equal, before, pair.drafter.parameters()))


@pytest.mark.parametrize(
    ("settings", "num_steps"),
    [
        pytest.param({"epochs": 2, "micro_batch": 1}, 10, id="one-row"),
        # Lengths fall into two buckets of 3 and 2 samples: 2 + 1 batches.
        pytest.param({"epochs": 2, "micro_batch": 2}, 6, id="buckets-do-not-mix"),
        pytest.param({"epochs": 2, "micro_batch": 2, "accumulation": 2}, 4, id="accumulated"),
        pytest.param({"epochs": 2, "micro_batch": 1, "max_steps": 3}, 3, id="cut"),
    ],
)
def test_number_of_steps(
    tiny: Target, samples: list[Sample], settings: dict[str, int], num_steps: int
) -> None:
    config = config_with(**settings)
    assert plan_of(samples, config).num_steps == num_steps
    reports, _ = run(config, tiny, samples)
    assert reports[-1].step == reports[-1].num_steps == num_steps


def test_learning_rate_rises_and_falls(tiny: Target, samples: list[Sample]) -> None:
    config = config_with(epochs=4, micro_batch=1, warmup_fraction=0.2, final_lr_fraction=0.1)
    reports, _ = run(config, tiny, samples[:5])
    rates = [one.learning_rate / 5e-3 for one in reports]
    assert rates[0] < rates[3] < 1.0
    assert max(rates) == pytest.approx(1.0)
    assert 0.1 <= rates[-1] < 0.15


def test_learning_rate_stays_until_the_decay(tiny: Target, samples: list[Sample]) -> None:
    config = config_with(epochs=4, micro_batch=1, schedule="wsd", decay_fraction=0.5)
    reports, _ = run(config, tiny, samples[:5])
    rates = [one.learning_rate / 5e-3 for one in reports]
    assert rates[1:11] == [1.0] * 10
    assert rates[11:] == sorted(rates[11:], reverse=True)
    assert 0.0 < rates[-1] < 0.1


def test_stop_ends_after_the_step(tiny: Target, samples: list[Sample]) -> None:
    config = config_with(epochs=50)
    reports, _ = run(config, tiny, samples, stop_after=2)
    assert reports[-1].step == 2


def test_what_follows_a_step_is_told_of_each(tiny: Target, samples: list[Sample]) -> None:
    told: list[str] = []
    stop = SimpleNamespace(requested=False)

    def note(taken: StepTaken) -> None:
        told.append(f"{taken.step}/{taken.num_steps} in {taken.epoch}, last {taken.is_last}")

    def report(one: StepReport) -> None:
        told.append(f"report {one.step}")
        stop.requested = one.step == 3

    course = Course.of(config_with(epochs=2), pair=new_pair(tiny), samples=samples)
    ledger = Ledger(course.plan.num_steps, every_steps=1, report=report)
    train(course, ledger=ledger, stop=stop, after_step=[note, lambda taken: told.append("then")])
    assert told[:3] == ["report 1", "1/6 in 0, last False", "then"]
    assert told[-3:] == ["report 3", "3/6 in 0, last True", "then"]


def test_reports_sum_up_the_steps_between(tiny: Target, samples: list[Sample]) -> None:
    every_step = config_with(epochs=2)
    every_fourth = msgspec.structs.replace(every_step, log=LogConfig(every_steps=4))
    single, _ = run(every_step, tiny, samples)
    summed, _ = run(every_fourth, tiny, samples)
    assert [one.step for one in summed] == [4, 6]
    assert sum(one.num_tokens for one in summed) == sum(one.num_tokens for one in single)
    labels = [int(one.sums.num_labels_K.sum()) for one in single]
    assert [int(one.sums.num_labels_K.sum()) for one in summed] == [
        sum(labels[:4]),
        sum(labels[4:]),
    ]


def test_store_stays_within_its_budget(tiny: Target, samples: list[Sample]) -> None:
    bytes_per_token = len(LAYERS) * 32 * 4
    store = FeatureStore(tiny, budget_bytes=len(samples[0].ids) * bytes_per_token)
    batch = collate(samples[:2], rows=3, buckets=(96,), eos_id=2)
    store.features(batch)
    assert list(store._kept) == [samples[0].index]  # noqa: SLF001  what the budget is about
    alone = collate(samples[:1], rows=2, buckets=(96,), eos_id=2)
    tiny_states = tiny.states(alone.ids_BS[:1]).tapped_BTF
    length = len(samples[0].ids)
    features_BSF = store.features(alone).tapped_BSF
    torch.testing.assert_close(features_BSF[:1, :length], tiny_states[:, :length])
    assert features_BSF[1].eq(0).all()
