from __future__ import annotations

import dataclasses
import itertools
import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from tests.train.conftest import TinyTarget, keys
from train.anchors import Anchors, block_inputs, sample_anchors
from train.attention import (
    DenseAttentionTooLargeError,
    DenseMask,
    FusedAttention,
    FusedMask,
    UnfusedAttentionError,
    attention_for,
)
from train.block_mask import block_mask
from train.settings import ConfigError
from train.visibility import dense_mask, visibility

if TYPE_CHECKING:
    from collections.abc import Callable

    from train.drafter import Drafter
    from train.objective import Rows


class Case(NamedTuple):
    """Blocks of a few rows; all sizes are small enough for loops over every pair."""

    anchors: Anchors
    num_context: int
    block_size: int
    tile: int

    @property
    def num_queries(self) -> int:
        return self.anchors.anchor_BN.shape[1] * self.block_size


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw overlapping and dropped blocks, several documents, sizes that divide nothing."""
    num_context = draw(st.integers(2, 40))
    num_rows = draw(st.integers(1, 2))
    bits = st.lists(st.booleans(), min_size=num_context, max_size=num_context)
    loss_mask_BS = torch.tensor([draw(bits) for _ in range(num_rows)])
    cuts = draw(st.sets(st.integers(1, num_context - 1), max_size=3)) | {0}
    starts = torch.tensor([max(c for c in cuts if c <= t) for t in range(num_context)])
    anchors = sample_anchors(
        loss_mask_BS,
        keys_BS=keys(num_rows, num_context, seed=draw(st.integers(0, 99))),
        num_anchors=draw(st.integers(1, 9)),
        document_start_BS=starts.expand(num_rows, -1),
    )
    block_size = draw(st.integers(2, 6))
    return Case(anchors, num_context, block_size, tile=draw(st.sampled_from([4, 8, 16])))


def sees_by_loops(case: Case) -> Tensor:
    """Write the rule down once more, pair by pair, without tensors."""
    num_rows, num_blocks = case.anchors.anchor_BN.shape
    num_keys = case.num_context + case.num_queries
    sees = torch.zeros(num_rows, 1, case.num_queries, num_keys, dtype=torch.bool)
    for row, block in itertools.product(range(num_rows), range(num_blocks)):
        anchor = int(case.anchors.anchor_BN[row, block])
        first = int(case.anchors.context_start_BN[row, block])
        is_kept = bool(case.anchors.keep_BN[row, block])
        own = range(block * case.block_size, (block + 1) * case.block_size)
        for query in own:
            for key in range(case.num_context):
                sees[row, 0, query, key] = is_kept and first <= key < anchor
            for other in own:
                sees[row, 0, query, case.num_context + other] = True
    return sees


def tiles_of(mask: BlockMask) -> tuple[Tensor, Tensor]:
    """Return which tiles are evaluated or full, and which are full; [B, 1, X, Y] each."""
    assert mask.full_kv_num_blocks is not None
    assert mask.full_kv_indices is not None
    full = BlockMask.from_kv_blocks(mask.full_kv_num_blocks, mask.full_kv_indices)
    return mask.to_dense().bool(), full.to_dense().bool()


@settings(deadline=None)
@given(case=cases())
def test_mask_is_the_rule(case: Case) -> None:
    found = dense_mask(case.anchors, num_context=case.num_context, block_size=case.block_size)
    assert torch.equal(found, sees_by_loops(case))


@given(case=cases())
def test_queries_that_only_fill_the_last_tile_see_nothing(case: Case) -> None:
    shape = {"num_context": case.num_context, "block_size": case.block_size}
    q_Q1 = torch.arange(case.num_queries, case.num_queries + case.tile)[:, None]
    j_T = torch.arange(case.num_context + case.num_queries)
    zero = torch.tensor(0)
    assert not visibility(case.anchors, **shape)(zero, zero, q_Q1, j_T).any()


@settings(deadline=None)
@given(case=cases())
def test_tiles_say_what_the_mask_says(case: Case) -> None:
    shape = {"num_context": case.num_context, "block_size": case.block_size}
    mask = block_mask(case.anchors, **shape, tile=case.tile)
    touched, full = (
        tiles.repeat_interleave(case.tile, -2).repeat_interleave(case.tile, -1)
        for tiles in tiles_of(mask)
    )
    dense = dense_mask(case.anchors, **shape)
    _, _, num_queries, num_keys = dense.shape
    assert mask.seq_lengths == (num_queries, num_keys)
    touched, full = (tiles[:, :, :num_queries, :num_keys] for tiles in (touched, full))
    # What the kernel computes: full tiles without asking the rule, evaluated tiles with it.
    assert torch.equal(full | (touched & dense), dense)


@settings(deadline=None, max_examples=25)
@given(case=cases())
def test_tiles_are_those_of_create_block_mask(case: Case) -> None:
    assume(case.block_size < case.tile)
    shape = {"num_context": case.num_context, "block_size": case.block_size}
    found = block_mask(case.anchors, **shape, tile=case.tile)
    wanted = create_block_mask(
        visibility(case.anchors, **shape),
        len(case.anchors.anchor_BN),
        None,
        case.num_queries,
        case.num_context + case.num_queries,
        device="cpu",
        BLOCK_SIZE=case.tile,
    )
    for ours, theirs in zip(tiles_of(found), tiles_of(wanted), strict=True):
        assert torch.equal(ours, theirs)


def test_the_first_token_sees_its_block_alone() -> None:
    anchors = Anchors(
        anchor_BN=torch.tensor([[0, 2]]),
        context_start_BN=torch.zeros(1, 2, dtype=torch.int64),
        keep_BN=torch.ones(1, 2, dtype=torch.bool),
    )
    mask = dense_mask(anchors, num_context=3, block_size=2)[0, 0].int().tolist()
    assert mask == [
        [0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 0, 1, 1],
        [1, 1, 0, 0, 0, 1, 1],
    ]


class Drafted(NamedTuple):
    """One training forward pass of one row, with what went in."""

    rows: Rows
    anchors: Anchors
    run: Callable[..., Tensor]


@pytest.fixture
def drafted(
    target: TinyTarget, drafter_of: Callable[..., Drafter], rows_of: Callable[..., Rows]
) -> Drafted:
    """A row with overlapping blocks and a padded end; `run` replaces inputs before drafting."""
    drafter = drafter_of(block_size=4)
    rows = rows_of(1, 24)
    rows = dataclasses.replace(rows, loss_mask_BS=rows.loss_mask_BS & (torch.arange(24) < 20))
    anchors = sample_anchors(rows.loss_mask_BS, keys_BS=rows.keys_BS, num_anchors=8)

    def run(rows: Rows = rows, noise: Callable[[Tensor], Tensor] = lambda noise: noise) -> Tensor:
        inputs = block_inputs(
            rows.ids_BS,
            loss_mask_BS=rows.loss_mask_BS,
            anchors=anchors,
            block_size=4,
            mask_token_id=drafter.config.mask_token_id,
        )
        out: Tensor = drafter(
            noise(target.embed(inputs.block_ids_BNK.flatten(1))),
            target_hidden_BCF=rows.target_hidden_BSF,
            positions_BT=inputs.positions_BT,
            attend=DenseMask()(anchors, num_context=24, block_size=4, num_heads=4),
        )
        return out.detach().view(1, 8, 4, 32)

    return Drafted(rows, anchors, run)


def test_nothing_leaks_from_the_anchor_on(drafted: Drafted) -> None:
    wanted = drafted.run()
    for block, anchor in enumerate(drafted.anchors.anchor_BN[0].tolist()):
        states = drafted.rows.target_hidden_BSF.clone()
        states[:, anchor:] = torch.randn_like(states[:, anchor:])
        found = drafted.run(dataclasses.replace(drafted.rows, target_hidden_BSF=states))
        assert torch.equal(found[:, : block + 1], wanted[:, : block + 1])
        states[:, anchor - 1] += 1.0
        found = drafted.run(dataclasses.replace(drafted.rows, target_hidden_BSF=states))
        assert not torch.equal(found[:, block], wanted[:, block])


def test_nothing_leaks_from_later_tokens_through_the_target(
    drafted: Drafted, target: TinyTarget
) -> None:
    wanted = drafted.run()
    for block, anchor in enumerate(drafted.anchors.anchor_BN[0].tolist()):
        ids = drafted.rows.ids_BS.clone()
        ids[:, anchor + 1 :] = (ids[:, anchor + 1 :] + 7) % 50
        states = target.states(ids).tapped_BTF
        found = drafted.run(dataclasses.replace(drafted.rows, ids_BS=ids, target_hidden_BSF=states))
        assert torch.equal(found[:, : block + 1], wanted[:, : block + 1])


def test_blocks_do_not_see_each_other(drafted: Drafted) -> None:
    wanted = drafted.run()
    for block in range(drafted.anchors.anchor_BN.shape[1]):

        def change_others(noise: Tensor, block: int = block) -> Tensor:
            changed = torch.randn_like(noise)
            own = slice(block * 4, block * 4 + 4)
            changed[:, own] = noise[:, own]
            return changed

        found = drafted.run(noise=change_others)
        assert torch.equal(found[:, block], wanted[:, block])
        others = [other for other in range(8) if other != block]
        assert not torch.equal(found[:, others], wanted[:, others])


def test_all_slots_of_a_block_see_each_other(drafted: Drafted) -> None:
    wanted = drafted.run()
    for slot in range(4):

        def change_slot(noise: Tensor, slot: int = slot) -> Tensor:
            changed = noise.clone()
            changed[:, slot::4] += 1.0
            return changed

        is_same = (drafted.run(noise=change_slot) == wanted).all(dim=-1)
        assert not is_same.any()


def test_padding_is_not_seen(drafted: Drafted) -> None:
    states, ids = drafted.rows.target_hidden_BSF.clone(), drafted.rows.ids_BS.clone()
    states[:, 20:], ids[:, 20:] = 1e4, 0
    rows = dataclasses.replace(drafted.rows, ids_BS=ids, target_hidden_BSF=states)
    assert torch.equal(drafted.run(rows), drafted.run())


def test_dropped_blocks_are_finite(drafter_of: Callable[..., Drafter]) -> None:
    drafter = drafter_of(block_size=4)
    none = torch.zeros(1, 6, dtype=torch.bool)
    anchors = sample_anchors(none, keys_BS=keys(1, 6), num_anchors=2)
    out = drafter(
        torch.randn(1, 8, 32),
        target_hidden_BCF=torch.randn(1, 6, 96),
        positions_BT=torch.arange(14)[None],
        attend=DenseMask()(anchors, num_context=6, block_size=4, num_heads=4),
    )
    assert out.isfinite().all()


def test_dense_attention_refuses_what_does_not_fit() -> None:
    anchors = sample_anchors(
        torch.ones(1, 512, dtype=torch.bool), keys_BS=keys(1, 512), num_anchors=512
    )
    # 32 heads, 8192 draft tokens, 8704 keys, float32: 8.5 GiB.
    with pytest.raises(DenseAttentionTooLargeError, match=r"8\.5 GiB of scores .* over 8\.0 GiB"):
        DenseMask()(anchors, num_context=512, block_size=16, num_heads=32)


def test_devices_get_what_they_can_train_with() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert attention_for(cpu) == DenseMask()
    assert attention_for(cuda) == attention_for(cuda, kind="flex") == FusedMask()
    assert attention_for(cuda, kind="dense") == DenseMask()
    with pytest.raises(ConfigError, match="found flex, which cannot train on cpu"):
        attention_for(cpu, kind="flex")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("disable", True), ("suppress_errors", True), ("error_on_nested_fx_trace", False)],
)
def test_settings_that_would_unfuse_attention_are_refused(setting: str, value: bool) -> None:
    anchors = sample_anchors(torch.ones(1, 8, dtype=torch.bool), keys_BS=keys(1, 8), num_anchors=2)
    with (
        torch._dynamo.config.patch(setting, value),  # noqa: SLF001
        pytest.raises(UnfusedAttentionError, match=setting),
    ):
        FusedMask()(anchors, num_context=8, block_size=4, num_heads=4)


@pytest.mark.slow  # compiles C++ for half a minute
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler on the CPU")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@torch.no_grad()
def test_fused_attention_equals_dense_attention() -> None:
    torch.manual_seed(0)
    loss_mask_BS = torch.rand(2, 256) < 0.7
    loss_mask_BS[1, 40:] = False  # drops blocks
    anchors = sample_anchors(loss_mask_BS, keys_BS=keys(2, 256), num_anchors=50)
    q_BHQE = torch.randn(2, 4, 400, 16)
    k_BGTE, v_BGTE = torch.randn(2, 2, 2, 656, 16)
    shape = {"num_context": 256, "block_size": 8, "num_heads": 4}
    fused = FusedMask()(anchors, **shape)
    assert isinstance(fused, FusedAttention)
    wanted = DenseMask()(anchors, **shape)(q_BHQE, k_BGTE, v_BGTE)
    torch.testing.assert_close(fused(q_BHQE, k_BGTE, v_BGTE), wanted, atol=2e-6, rtol=1e-5)
    # The filter that turns torch's only sign of the unfused path into an error is in force.
    with pytest.raises(UserWarning, match="called without torch"):
        flex_attention(q_BHQE, k_BGTE, v_BGTE, block_mask=fused.tiles, enable_gqa=True)
