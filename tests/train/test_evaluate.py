from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

from tests.train.tiny_run import MASK, conversation, make_model, make_tokenizer
from train.acceptance import (
    Acceptance,
    is_lossless,
    standard_errors_above,
    tokens_per_second,
)
from train.config import DataConfig, DraftConfig, EvalConfig, TargetConfig, TrainConfig
from train.conversations import parse_row
from train.data import Encoding, build_dataset
from train.decode import Decoding, Round
from train.drafter import Drafter
from train.drafter_config import drafter_config_for
from train.evaluate import Evaluation, compare, computing_in
from train.progress import Progress
from train.target import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.data import Sample


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
    plain = [decoding([]), decoding([])]
    found = compare(plain, untrained=plain, trained=plain, block_size=4)
    assert found["lossless"] is True
    assert found["untrained"]["num_prompts"] == 0


CONFIG = TrainConfig(
    name="t",
    target=TargetConfig(path="unused"),
    draft=DraftConfig(mask_token_id=MASK, num_layers=2, block_size=4),
    data=DataConfig(train="unused", held_out="unused", max_length=64, buckets=(64,)),
    eval=EvalConfig(num_anchors=4, num_prompts=2, max_new_tokens=7),
)


@pytest.fixture(scope="module", name="tiny")
def _tiny() -> Target:
    return Target(make_model(), make_tokenizer(), layer_ids=(1, 4))


@pytest.fixture(name="drafter")
def _drafter(tiny: Target) -> Drafter:
    torch.manual_seed(1)
    config = drafter_config_for(
        tiny.config, num_layers=2, block_size=4, mask_token_id=MASK, target_layer_ids=(1, 4)
    )
    return Drafter(config).eval()


@pytest.fixture(scope="module", name="samples")
def _samples(tiny: Target) -> list[Sample]:
    rows = [parse_row(conversation("q", "abcabcabc"), where="x") for _ in range(3)]
    encoding = Encoding(
        tiny.tokenizer, eos_id=2, mask_token_id=MASK, max_length=64, min_supervised=2
    )
    return build_dataset(rows, encoding).samples


def test_held_out_loss_repeats_exactly_and_ignores_the_seed(
    tiny: Target, drafter: Drafter, samples: list[Sample]
) -> None:
    evaluation = Evaluation(CONFIG, target=tiny, samples=samples, prompts=[])
    progress = Progress(every_seconds=1.0)
    first = evaluation.held_out_loss(drafter, progress=progress)
    torch.manual_seed(99)
    assert evaluation.held_out_loss(drafter, progress=progress) == first
    assert len(first["accuracy"]) == 3
    assert first["loss"] > 1.0


def test_decoding_is_lossless_with_an_untrained_drafter(tiny: Target, drafter: Drafter) -> None:
    prompts = [[1, 20, 21, 22], [1, 30, 31]]
    evaluation = Evaluation(CONFIG, target=tiny, samples=[], prompts=prompts)
    progress = Progress(every_seconds=1e9)
    plain = evaluation.decode(None, progress=progress, name="plain")
    drafted = evaluation.decode(drafter, progress=progress, name="drafted")
    assert is_lossless(drafted, plain)
    assert all(len(one.tokens) == 7 for one in plain)
    assert plain[0].acceptance_length == 1.0
    assert drafted[0].rounds


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
