"""The warm-up on a real GPU: it compiles all that a run needs, and proves what runs."""

from __future__ import annotations

import dataclasses
import io
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from tests.train.tiny_run import MASK, make_model, make_tokenizer
from train.attention import KERNEL_OPTIONS, FusedMask, UnfusedAttentionError
from train.compile_watch import RecompiledError
from train.config import (
    DataConfig,
    DraftConfig,
    EvalConfig,
    TargetConfig,
    TrainConfig,
    TrainSettings,
)
from train.course import Pair
from train.drafter import Drafter
from train.drafter_config import drafter_config_for
from train.fused_proof import MeasuredMask
from train.loop import StepTaken
from train.objective import draft_loss, objective_of
from train.progress import Progress
from train.settings import ConfigError
from train.target import Target
from train.warmup import blank_rows, take_step, warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from train.anchors import Anchors
    from train.drafter import Attend

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LAYERS = (1, 4)
TAKEN = StepTaken(step=1, num_steps=2, epoch=0, is_last=False)


@pytest.fixture(autouse=True)
def _compilers_may_warn() -> Iterator[None]:
    """Let torch's compiler warn about its own imports; what it says of our call stays an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", module=r"(torch\._(dynamo|inductor|functorch)|triton)\b")
        yield


def config_with(*, buckets: tuple[int, ...] = (1024, 2048), **train_settings: Any) -> TrainConfig:
    settings: dict[str, Any] = {"num_anchors": 128, "micro_batch": 2, "device": "cuda"}
    return TrainConfig(
        name="t",
        target=TargetConfig(path="unused"),
        draft=DraftConfig(mask_token_id=MASK, num_layers=2, block_size=16),
        data=DataConfig(train="x", held_out="x", max_length=buckets[-1], buckets=buckets),
        train=TrainSettings(**(settings | train_settings)),
        eval=EvalConfig(num_anchors=32),
    )


@pytest.fixture(params=[False, True], ids=["kept", "checkpointed"])
def pair(request: pytest.FixtureRequest) -> Pair:
    model = make_model(
        hidden_size=256, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=8192
    )
    target = Target(model.cuda().bfloat16(), make_tokenizer(), layer_ids=LAYERS)
    config = drafter_config_for(
        target.config, num_layers=2, block_size=16, mask_token_id=MASK, target_layer_ids=LAYERS
    )
    return Pair(target, Drafter(config, checkpoint_layers=request.param).cuda())


def quiet() -> Progress:
    return Progress(every_seconds=1.0, stream=io.StringIO())


def test_run_is_warm_and_proven_fused(pair: Pair) -> None:
    config = config_with()
    guard = warm_up(config, pair=pair, progress=quiet())
    assert all(parameter.grad is None for parameter in pair.drafter.parameters())
    for _ in range(10):
        for length in (2048, 1024):
            rows = blank_rows(config, pair=pair, num_tokens=length)
            for num_anchors in (128, 32):
                device = pair.target.device
                objective = objective_of(config, device=device, num_anchors=num_anchors)
                if num_anchors == config.train.num_anchors:
                    take_step(pair, rows=rows, objective=objective)
                else:
                    with torch.no_grad():
                        draft_loss(pair.drafter, target=pair.target, rows=rows, objective=objective)
        guard.after_step(TAKEN)
    found = guard.summary()
    assert found["num_shapes"] == 4
    assert found["compiled_after_warm_up"]["num_graphs"] == 0
    assert found["compiled_after_warm_up"]["num_new"] == 0
    assert found["attention"]["is_fused"] is True
    assert 0 < found["attention"]["forward_bytes"] < found["attention"]["dense_bytes"] / 4
    assert 0 < found["attention"]["backward_bytes"] < found["attention"]["dense_bytes"] / 2


def test_length_outside_the_buckets_stops_the_run(pair: Pair) -> None:
    torch.compiler.reset()  # what an earlier test compiled would not be compiled again
    config = config_with()
    guard = warm_up(config, pair=pair, progress=quiet())
    other = config_with(buckets=(1536,))
    objective = objective_of(other, device=pair.target.device, num_anchors=128)
    take_step(pair, rows=blank_rows(other, pair=pair, num_tokens=1536), objective=objective)
    with pytest.raises(RecompiledError, match="after the warm-up"):
        guard.after_step(TAKEN)


class UnfusedMask:
    """What a run gets whose flex_attention is not compiled: the failure that cost days."""

    def __call__(
        self, anchors: Anchors, *, num_context: int, block_size: int, num_heads: int
    ) -> Attend:
        tiles = FusedMask()(
            anchors, num_context=num_context, block_size=block_size, num_heads=num_heads
        ).tiles

        def attend(q_BHQE: Tensor, k_BGTE: Tensor, v_BGTE: Tensor) -> Tensor:
            found: Any = flex_attention(
                q_BHQE,
                k_BGTE,
                v_BGTE,
                block_mask=tiles,
                enable_gqa=True,
                kernel_options=KERNEL_OPTIONS,
            )
            return found  # type: ignore[no-any-return]

        return attend


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_unfused_attention_is_found_by_its_memory(pair: Pair) -> None:
    config = config_with()
    objective = objective_of(config, device=pair.target.device, num_anchors=128)
    measured = MeasuredMask(UnfusedMask(), pair.target.device)
    rows = blank_rows(config, pair=pair, num_tokens=2048)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        take_step(pair, rows=rows, objective=dataclasses.replace(objective, attention=measured))
    with pytest.raises(UnfusedAttentionError, match="the fused kernel did not run"):
        measured.memory.require_fused()


def test_step_that_does_not_fit_is_refused_at_the_start(pair: Pair) -> None:
    config = config_with(num_anchors=4096, micro_batch=512, buckets=(8192,))
    with pytest.raises(ConfigError, match=r"train\.micro_batch: .* 512 rows .* does not fit"):
        warm_up(config, pair=pair, progress=quiet())
