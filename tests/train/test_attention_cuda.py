"""The fused path on a real GPU: same numbers as dense, no scores in memory, no recompilation."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.autograd import backward

from tests.train.conftest import keys
from train.anchors import Anchors, BlockInputs, sample_anchors
from train.attention import DenseMask, FusedMask, MaskedAttention, num_compiled_graphs
from train.drafter import Drafter
from train.drafter_config import DrafterConfig
from train.loss import decayed_cross_entropy
from train.sizes import dense_attention_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

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


def trained_step(drafter: Drafter, *, num_context: int, head: Tensor) -> float:
    """Run forward, loss and backward of one row; return the loss."""
    config = drafter.config
    anchors = some_anchors(num_context, num_anchors=64)
    noise = torch.randn(1, 64 * config.block_size, config.hidden_size, device="cuda")
    states = torch.randn(1, num_context, config.target_hidden_size, device="cuda")
    hidden = drafter(
        noise.bfloat16(),
        target_hidden_BCF=states.bfloat16(),
        positions_BT=torch.arange(num_context + noise.shape[1], device="cuda")[None],
        attend=FusedMask()(
            anchors, num_context=num_context, block_size=config.block_size, num_heads=HEADS
        ),
    )
    labels = torch.randint(0, len(head), (1, 64, config.block_size), device="cuda")
    has_label = anchors.keep_BN[..., None].repeat(1, 1, config.block_size)
    has_label[..., 0] = False
    sums = decayed_cross_entropy(
        hidden,
        head=lambda x: x @ head.T,
        inputs=BlockInputs(labels, labels, labels, has_label),
        gamma=4.0,
    )
    backward(sums.numerator / sums.denominator)
    return sums.loss


@pytest.mark.parametrize("checkpoint_layers", [False, True])
def test_no_recompilation_over_mixed_lengths(checkpoint_layers: bool) -> None:
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
    drafter = Drafter(config, checkpoint_layers=checkpoint_layers).cuda()
    head = torch.randn(1000, config.hidden_size, device="cuda", dtype=torch.bfloat16)
    buckets = (256, 512, 1024)
    for num_context in buckets:
        trained_step(drafter, num_context=num_context, head=head)
    warm = num_compiled_graphs()
    for step in range(50):
        loss = trained_step(drafter, num_context=buckets[step % len(buckets)], head=head)
        assert 0 < loss < 100
    assert num_compiled_graphs() == warm
