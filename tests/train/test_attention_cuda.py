"""The fused path on a real GPU: same numbers as dense, no scores in memory, no recompilation."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
import torch
from torch.autograd import backward

from tests.train.conftest import keys
from train.anchors import Anchors, sample_anchors
from train.attention import DenseMask, FusedMask, MaskedAttention
from train.compile_watch import compilations
from train.course import Pair
from train.drafter import Drafter
from train.drafter_config import DrafterConfig
from train.objective import Objective, Rows, draft_loss
from train.selftest_drafting import check_drafting
from train.sizes import dense_attention_bytes
from train.slot_weights import DecayedWeights, PathWeights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from transformers import Cache

    from train.frozen_target import TargetStates, View
    from train.loss import LossSums
    from train.slot_weights import SlotWeights
    from train.target import Target

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

HEADS, KV_HEADS, HEAD_DIM = 8, 2, 64


@pytest.fixture(autouse=True)
def _compilers_may_warn() -> Iterator[None]:
    """Let torch's compiler warn about its own imports; what it says of our call stays an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", module=r"(torch\._(dynamo|inductor|functorch)|triton)\b")
        yield


def some_anchors(num_context: int, *, num_rows: int = 1, num_anchors: int) -> Anchors:
    """Draw anchors after a prompt of 9 tokens; the last row, if there are more, drops most."""
    loss_mask_BS = (torch.arange(num_context) >= 9).repeat(num_rows, 1)
    if num_rows > 1:
        loss_mask_BS[-1, 40:] = False
    keys_BS = keys(num_rows, num_context)
    return sample_anchors(loss_mask_BS.cuda(), keys_BS=keys_BS.cuda(), num_anchors=num_anchors)


def attended(
    masked: MaskedAttention, anchors: Anchors, *, num_context: int, block_size: int, dtype: Any
) -> list[Tensor]:
    """Return output and gradients for the same random inputs whatever the attention."""
    num_rows, num_blocks = anchors.anchor_BN.shape
    num_queries = num_blocks * block_size
    generator = torch.Generator("cuda").manual_seed(0)

    def random(heads: int, tokens: int) -> Tensor:
        shape = (num_rows, heads, tokens, HEAD_DIM)
        return torch.randn(shape, generator=generator, device="cuda", dtype=dtype)

    num_keys = num_context + num_queries
    inputs = [random(HEADS, num_queries), random(KV_HEADS, num_keys), random(KV_HEADS, num_keys)]
    for one in inputs:
        one.requires_grad_()
    attend = masked(anchors, num_context=num_context, block_size=block_size, num_heads=HEADS)
    out = attend(*inputs)
    return [out, *torch.autograd.grad(out, inputs, random(HEADS, num_queries))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("num_context", "num_anchors", "block_size"),
    [
        pytest.param(512, 64, 16, id="tiles-fit"),
        pytest.param(300, 37, 10, id="nothing-divides"),
        pytest.param(128, 5, 8, id="less-than-a-tile"),
    ],
)
def test_fused_equals_dense_forward_and_backward(
    num_context: int, num_anchors: int, block_size: int, dtype: torch.dtype
) -> None:
    anchors = some_anchors(num_context, num_rows=2, num_anchors=num_anchors)
    shape = {"num_context": num_context, "block_size": block_size}
    wanted = attended(DenseMask(), anchors, **shape, dtype=torch.float32)
    found = attended(FusedMask(), anchors, **shape, dtype=dtype)
    rounded = attended(DenseMask(), anchors, **shape, dtype=dtype)
    for name, ours, exact, theirs in zip("oqkv", found, wanted, rounded, strict=True):
        assert ours.isfinite().all(), name
        # Not worse than twice the rounding of dense attention in the same dtype.
        allowed = 2 * (theirs.float() - exact).norm() + 2e-3 * exact.norm()
        assert (ours.float() - exact).norm() <= allowed, name


def test_scores_are_never_held() -> None:
    num_context, num_anchors, block_size = 4096, 512, 16
    anchors = some_anchors(num_context, num_anchors=num_anchors)
    shape = {"num_context": num_context, "block_size": block_size}
    attended(FusedMask(), anchors, **shape, dtype=torch.bfloat16)  # compiles
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attended(FusedMask(), anchors, **shape, dtype=torch.bfloat16)
    peak_bytes = torch.cuda.max_memory_allocated() - before
    num_queries = num_anchors * block_size
    scores_bytes = dense_attention_bytes(
        HEADS, num_queries=num_queries, num_keys=num_context + num_queries
    )
    print(f"peak {peak_bytes / 2**20:.0f} MiB, dense scores {scores_bytes / 2**20:.0f} MiB")  # noqa: T201 - for the record
    assert peak_bytes < scores_bytes / 8


class StandIn:
    """A target of one table, in bfloat16 on the device."""

    def __init__(self, config: DrafterConfig) -> None:
        shape = (config.vocab_size, config.hidden_size)
        self.table_VD = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        self.device = self.table_VD.device

    def embed(self, ids_BT: Tensor) -> Tensor:
        return self.table_VD[ids_BT]

    def logits(self, final_D: Tensor) -> Tensor:
        return final_D @ self.table_VD.T / 8

    def states(
        self, ids_BT: Tensor, *, cache: Cache | None = None, view: View | None = None
    ) -> TargetStates:
        raise NotImplementedError


class Run(NamedTuple):
    """What a training step needs."""

    drafter: Drafter
    target: StandIn
    objective: Objective

    def rows(self, num_tokens: int) -> Rows:
        config = self.drafter.config
        return Rows(
            ids_BS=torch.randint(0, config.vocab_size, (1, num_tokens), device="cuda"),
            loss_mask_BS=(torch.arange(num_tokens, device="cuda") >= 9)[None],
            keys_BS=keys(1, num_tokens).cuda(),
            target_hidden_BSF=torch.randn(
                (1, num_tokens, config.target_hidden_size), device="cuda", dtype=torch.bfloat16
            ),
            target_final_BSD=torch.randn(
                (1, num_tokens, config.hidden_size), device="cuda", dtype=torch.bfloat16
            ),
        )

    def step(self, rows: Rows) -> LossSums:
        sums = draft_loss(self.drafter, target=self.target, rows=rows, objective=self.objective)
        backward(sums.numerator / sums.denominator)
        return sums.detach()


@pytest.fixture(params=[False, True], ids=["kept", "checkpointed"])
def small_run(request: pytest.FixtureRequest) -> Run:
    """A drafter of two layers, in float32 under bfloat16 inputs as in every run on a GPU."""
    config = DrafterConfig(
        hidden_size=HEADS * HEAD_DIM,
        num_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        intermediate_size=1024,
        vocab_size=1000,
        block_size=8,
        mask_token_id=999,
        target_layer_ids=(1, 3),
        num_target_layers=6,
    )
    objective = Objective(num_anchors=64, weights=DecayedWeights(4.0), attention=FusedMask())
    drafter = Drafter(config, checkpoint_layers=request.param).cuda()
    return Run(drafter, StandIn(config), objective)


def test_no_recompilation_over_mixed_lengths(small_run: Run) -> None:
    rows = [small_run.rows(num_tokens) for num_tokens in (256, 512, 1024)]
    for one in rows:
        small_run.step(one)
    warm = compilations()
    for step in range(50):
        assert 0 < small_run.step(rows[step % len(rows)]).loss < 100
    assert compilations() == warm


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("temperature", [None, 1.0, 2.0])
@pytest.mark.parametrize("weights", [DecayedWeights(4.0), PathWeights()], ids=["decay", "dpace"])
def test_a_step_never_waits_for_the_device(
    small_run: Run, weights: SlotWeights, temperature: float | None
) -> None:
    objective = dataclasses.replace(
        small_run.objective, weights=weights, temperature=temperature, chunk_blocks=24
    )
    run, rows = small_run._replace(objective=objective), small_run.rows(256)
    run.step(rows)
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        run.step(rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_self_test_passes_on_the_fused_path(small_run: Run) -> None:
    pair = Pair(cast("Target", small_run.target), small_run.drafter)
    check_drafting(pair, rows=small_run.rows(256), objective=small_run.objective)
