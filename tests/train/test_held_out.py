from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

from tests.train.decoding import decode_blocks, decode_plain
from tests.train.tiny_run import MASK, make_model, make_tokenizer
from tests.train.tiny_training import dataset_of, new_pair, tiny_target
from train.acceptance import (
    Acceptance,
    is_lossless,
    standard_errors_above,
    tokens_per_second,
)
from train.config import DataConfig, DraftConfig, EvalConfig, TargetConfig, TrainConfig
from train.decode import Decoding
from train.draft_tree import Round
from train.held_out import Evaluation, compare
from train.measure import Measured
from train.progress import Progress
from train.target import Target, computing_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.data import Sample
    from train.drafter import Drafter


def decoding(accepted: Sequence[int], *, seconds: float = 1.0) -> Decoding:
    rounds = tuple(Round(num_accepted=a, num_emitted=a + 1) for a in accepted)
    return Decoding(
        tokens=tuple(range(1 + sum(a + 1 for a in accepted))), rounds=rounds, seconds=seconds
    )


def test_acceptance_pooled_and_per_prompt() -> None:
    found = Acceptance.of([decoding([3, 3, 0]), decoding([0])], block_size=4)
    assert found.pooled == pytest.approx((4 + 4 + 1 + 1) / 4)
    assert found.mean == pytest.approx((3 + 1) / 2)
    # Two prompts, 3 and 1: standard deviation sqrt(2), over sqrt(2).
    assert found.standard_error == pytest.approx(1.0)
    assert found.per_position == pytest.approx([0.5, 0.5, 0.5])
    assert (found.num_prompts, found.num_rounds) == (2, 4)


def test_per_position_counts_prefixes() -> None:
    found = Acceptance.of([decoding([0, 1, 2, 3])], block_size=4)
    assert found.per_position == pytest.approx([0.75, 0.5, 0.25])
    assert found.histogram == [1, 1, 1, 1]
    assert math.isnan(found.standard_error)


def test_prompts_without_rounds_do_not_count() -> None:
    found = Acceptance.of([decoding([]), decoding([1])], block_size=4)
    assert (found.mean, found.num_prompts) == (2.0, 1)
    assert math.isnan(Acceptance.of([decoding([])], block_size=4).mean)


def test_standard_errors_above() -> None:
    low = Acceptance.of([decoding([0]), decoding([1])], block_size=4)
    high = Acceptance.of([decoding([2]), decoding([3])], block_size=4)
    assert standard_errors_above(high, low) == pytest.approx(2 / math.hypot(0.5, 0.5))
    exact = Acceptance.of([decoding([0]), decoding([0])], block_size=4)
    assert standard_errors_above(exact, exact) == 0.0
    assert (
        standard_errors_above(Acceptance.of([decoding([1])] * 2, block_size=4), exact) == math.inf
    )


def test_first_token_is_not_timed() -> None:
    assert tokens_per_second([decoding([1, 1], seconds=2.0)]) == pytest.approx(2.0)
    assert math.isnan(tokens_per_second([decoding([])]))


def test_lossless_needs_every_token_of_every_prompt() -> None:
    plain = [decoding([0, 0]), decoding([1])]
    assert is_lossless([decoding([0, 0]), decoding([2])], plain) is False
    assert is_lossless(plain, plain) is True
    assert is_lossless(plain[:1], plain) is False


def test_compare_is_json_ready() -> None:
    plain = Measured([decoding([]), decoding([])], timed=[])
    found = compare(plain, untrained=plain, trained=plain, block_size=4)
    assert found["lossless"] is True
    assert found["untrained"]["num_prompts"] == 0
    assert found["num_timed_prompts"] == 0
    assert math.isnan(found["speed_up"])


def test_compare_takes_speeds_from_prompts_decoded_alone() -> None:
    answers = [decoding([1, 1], seconds=99.0), decoding([0], seconds=99.0)]
    plain = Measured(answers, timed=[decoding([0, 0, 0, 0], seconds=4.0)])
    trained = Measured(answers, timed=[decoding([1, 1], seconds=2.0)])
    found = compare(plain, untrained=plain, trained=trained, block_size=4)
    assert found["tokens_per_second"] == {"plain": 1.0, "untrained": 1.0, "trained": 2.0}
    assert found["speed_up"] == 2.0
    assert (found["num_prompts"], found["num_timed_prompts"]) == (2, 1)
    # Untrained and trained answers must both be the target's own.
    other = Measured([answers[0], decoding([1])], timed=[])
    assert compare(plain, untrained=plain, trained=other, block_size=4)["lossless"] is False
    assert compare(plain, untrained=other, trained=plain, block_size=4)["lossless"] is False


CONFIG = TrainConfig(
    name="t",
    target=TargetConfig(path="unused"),
    draft=DraftConfig(mask_token_id=MASK, num_layers=2, block_size=4),
    data=DataConfig(train="unused", held_out="unused", max_length=64, buckets=(64,)),
    eval=EvalConfig(num_anchors=4, num_prompts=2, max_new_tokens=7),
)


@pytest.fixture(scope="module", name="tiny")
def _tiny() -> Target:
    return tiny_target()


@pytest.fixture(name="drafter")
def _drafter(tiny: Target) -> Drafter:
    return new_pair(tiny).drafter.eval()


@pytest.fixture(scope="module", name="samples")
def _samples(tiny: Target) -> list[Sample]:
    return dataset_of(tiny, ["abcabcabc"] * 3).samples


def test_held_out_loss_repeats_exactly_and_ignores_the_seed(
    tiny: Target, drafter: Drafter, samples: list[Sample]
) -> None:
    evaluation = Evaluation(CONFIG, target=tiny, samples=samples, prompts=[])
    progress = Progress(every_seconds=1.0)
    first = evaluation.held_out_loss(drafter, progress=progress)
    torch.manual_seed(99)
    assert evaluation.held_out_loss(drafter, progress=progress) == first
    seeded = msgspec.structs.replace(CONFIG, train=msgspec.structs.replace(CONFIG.train, seed=7))
    other = Evaluation(seeded, target=tiny, samples=samples, prompts=[])
    assert other.held_out_loss(drafter, progress=progress) == first
    assert len(first["accuracy"]) == 3
    assert first["loss"] > 1.0


@pytest.mark.parametrize("batch", [1, 2, 32])
def test_decoding_is_lossless_with_an_untrained_drafter(
    tiny: Target, drafter: Drafter, batch: int
) -> None:
    prompts = [[1, 20, 21, 22], [1, 30, 31], [1, 40]]
    config = msgspec.structs.replace(
        CONFIG, eval=msgspec.structs.replace(CONFIG.eval, batch=batch, timed_prompts=2)
    )
    evaluation = Evaluation(config, target=tiny, samples=[], prompts=prompts)
    progress = Progress(every_seconds=1e9)
    plain = evaluation.decode(None, progress=progress, name="plain")
    drafted = evaluation.decode(drafter, progress=progress, name="drafted")
    limits: dict[str, Any] = {"max_new_tokens": 7, "stop_ids": {tiny.eos_id}}
    alone = [decode_plain(tiny, prompt, **limits) for prompt in prompts]
    for found in (plain, drafted):
        assert is_lossless(found.answers, alone)
        assert is_lossless(found.timed, alone[:2])
    one_by_one = [decode_blocks(tiny, drafter, prompt, **limits) for prompt in prompts]
    assert [one.rounds for one in drafted.answers] == [one.rounds for one in one_by_one]
    assert all(len(one.tokens) == 7 for one in plain.answers)
    assert plain.answers[0].acceptance_length == 1.0


def test_computing_in_another_dtype_is_undone() -> None:
    target = Target(make_model().to(torch.bfloat16), make_tokenizer(), layer_ids=(1,))
    before = {name: tensor.clone() for name, tensor in target.model.state_dict().items()}
    with computing_in(target, "float32"):
        assert target.dtype == torch.float32
    assert target.dtype == torch.bfloat16
    assert all(torch.equal(before[n], t) for n, t in target.model.state_dict().items())
    with computing_in(target, "target"):
        assert target.dtype == torch.bfloat16


def test_computing_in_another_dtype_never_rounds_rotary_frequencies() -> None:
    """Found on a GPU: after one round trip, every later decoding differed from the first."""
    model = make_model()
    for weight in model.parameters():  # as `from_pretrained(dtype=...)` loads: buffers stay float32
        weight.data = weight.data.to(torch.bfloat16)
    target = Target(model, make_tokenizer(), layer_ids=(1,))
    ids_1T = torch.arange(1, 9)[None]
    before_1TF = target.states(ids_1T).tapped_BTF
    with computing_in(target, "float32"):
        pass
    assert {b.dtype for b in model.buffers() if b.is_floating_point()} == {torch.float32}
    assert torch.equal(target.states(ids_1T).tapped_BTF, before_1TF)
