from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train.conftest import MASK, keys
from train.anchors import Anchors, anchor_keys, block_inputs, sample_anchors, valid_anchors


@st.composite
def loss_masks(draw: st.DrawFn) -> torch.Tensor:
    num_rows, num_tokens = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    bits = draw(st.lists(st.booleans(), min_size=num_rows * num_tokens, max_size=120))
    return torch.tensor(bits[: num_rows * num_tokens]).view(num_rows, num_tokens)


def documents(num_tokens: int, *starts: int) -> torch.Tensor:
    """Return `document_start_BS` of one row whose documents begin at these indices."""
    return torch.tensor([[max(s for s in starts if s <= t) for t in range(num_tokens)]])


@given(loss_mask_BS=loss_masks(), num_anchors=st.integers(1, 50), seed=st.integers(0, 2**62))
def test_anchors_are_valid_different_ascending_and_all_that_fit(
    loss_mask_BS: torch.Tensor, num_anchors: int, seed: int
) -> None:
    keys_BS = keys(*loss_mask_BS.shape, seed=seed)
    anchors = sample_anchors(loss_mask_BS, keys_BS=keys_BS, num_anchors=num_anchors)
    assert anchors.anchor_BN.shape == (len(loss_mask_BS), num_anchors)
    for row, supervised in enumerate(loss_mask_BS.tolist()):
        valid = {p for p, pair in enumerate(itertools.pairwise(supervised)) if all(pair)}
        keep = anchors.keep_BN[row]
        kept = anchors.anchor_BN[row][keep].tolist()
        assert set(kept) <= valid
        assert kept == sorted(set(kept))
        assert len(kept) == min(num_anchors, len(valid))
        assert keep.tolist() == sorted(keep.tolist(), reverse=True)
        assert not anchors.anchor_BN[row][~keep].any()
    assert not anchors.context_start_BN.any()


def test_an_anchor_and_its_successor_share_a_document() -> None:
    loss_mask_BS = torch.ones(1, 6, dtype=torch.bool)
    valid_BS = valid_anchors(loss_mask_BS, document_start_BS=documents(6, 0, 2))
    assert valid_BS.tolist() == [[True, False, True, True, True, False]]


def test_anchors_are_uniform() -> None:
    loss_mask_BS = (torch.arange(20) >= 3)[None].expand(3000, -1)
    keys_BS = keys(3000, 20)
    anchors = sample_anchors(loss_mask_BS, keys_BS=keys_BS, num_anchors=4)
    counts = anchors.anchor_BN.flatten().bincount(minlength=20)
    assert counts[:3].sum() == counts[19] == 0
    expected = 3000 * 4 / 16
    chi_square = ((counts[3:19] - expected) ** 2 / expected).sum()
    # 16 places: 15 degrees of freedom, of which 37.7 is the 99.9th percentile. The seed is fixed.
    assert chi_square < 37.7


def test_keys_follow_from_seed_epoch_and_sample_alone() -> None:
    def draw(
        num_tokens: int = 50, *, seed: int = 1, epoch: int = 2, sample: int = 3
    ) -> torch.Tensor:
        return anchor_keys(num_tokens, seed=seed, epoch=epoch, sample_index=sample)

    torch.manual_seed(0)
    first = draw()
    torch.manual_seed(1)
    assert torch.equal(first, draw())
    for other in (draw(seed=2), draw(epoch=3), draw(sample=4), draw(epoch=3, sample=2)):
        assert not torch.equal(first, other)
    state = torch.random.get_rng_state()
    draw()
    assert torch.equal(state, torch.random.get_rng_state())


def test_keys_are_those_that_earlier_runs_had() -> None:
    keys_S = anchor_keys(3, seed=42, epoch=1, sample_index=7)
    assert keys_S.tolist() == pytest.approx([0.539525, 0.43512, 0.928297], abs=1e-6)


@pytest.mark.parametrize("num_tokens", [1, 7, 15, 16, 17, 64, 500])
def test_padding_does_not_change_the_keys(num_tokens: int) -> None:
    longer = anchor_keys(1000, seed=5, epoch=0, sample_index=9)
    assert torch.equal(
        anchor_keys(num_tokens, seed=5, epoch=0, sample_index=9), longer[:num_tokens]
    )


def test_known_keys_stay() -> None:
    # Resuming a run needs the anchors it would have had: a change here breaks every old run.
    found = anchor_keys(3, seed=42, epoch=1, sample_index=7)
    assert found.tolist() == pytest.approx(
        [0.539524652705453, 0.435120271456075, 0.928296996173005]
    )


def made_anchors(*anchors: int, dropped: int = 0) -> Anchors:
    anchor_BN = torch.tensor([[*anchors, *[0] * dropped]])
    return Anchors(
        anchor_BN=anchor_BN,
        context_start_BN=torch.zeros_like(anchor_BN),
        keep_BN=torch.arange(anchor_BN.shape[1])[None] < len(anchors),
    )


def test_labels_stand_at_their_own_position() -> None:
    inputs = block_inputs(
        torch.tensor([[10, 11, 12, 13, 14, 15]]),
        loss_mask_BS=torch.tensor([[False, True, True, False, True, True]]),
        anchors=made_anchors(1, 4, dropped=1),
        block_size=4,
        mask_token_id=MASK,
    )
    assert inputs.block_ids_BNK.tolist() == [
        [[11, MASK, MASK, MASK], [14, MASK, MASK, MASK], [MASK] * 4]
    ]
    # A hole in the supervision drops its slot alone; slots beyond the end have no label.
    assert inputs.labels_BNK.tolist() == [[[0, 12, 0, 14], [0, 15, 0, 0], [0, 0, 0, 0]]]
    assert inputs.has_label_BNK.tolist() == [
        [[False, True, False, True], [False, True, False, False], [False] * 4]
    ]
    assert inputs.positions_BT.tolist() == [[*range(6), 1, 2, 3, 4, 4, 5, 6, 7, 0, 1, 2, 3]]


def test_documents_of_a_row_restart_positions_and_bound_labels() -> None:
    document_start_BS = documents(8, 0, 3)
    loss_mask_BS = torch.ones(1, 8, dtype=torch.bool)
    anchors = sample_anchors(
        loss_mask_BS, keys_BS=keys(1, 8), num_anchors=6, document_start_BS=document_start_BS
    )
    assert anchors.anchor_BN.tolist() == [[0, 1, 3, 4, 5, 6]]
    assert anchors.context_start_BN.tolist() == [[0, 0, 3, 3, 3, 3]]
    inputs = block_inputs(
        torch.arange(10, 18)[None],
        loss_mask_BS=loss_mask_BS,
        anchors=anchors,
        block_size=3,
        mask_token_id=MASK,
        document_start_BS=document_start_BS,
    )
    assert inputs.labels_BNK.tolist() == [
        [[0, 11, 12], [0, 12, 0], [0, 14, 15], [0, 15, 16], [0, 16, 17], [0, 17, 0]]
    ]
    positions = inputs.positions_BT[0].tolist()
    assert positions[:8] == [0, 1, 2, 0, 1, 2, 3, 4]
    assert positions[8:] == [0, 1, 2, 1, 2, 3, 0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5]


def test_rows_shorter_than_the_number_of_anchors_are_filled_up() -> None:
    loss_mask_BS = torch.tensor([[True, True, True], [True, False, True]])
    anchors = sample_anchors(loss_mask_BS, keys_BS=keys(2, 3), num_anchors=5)
    assert anchors.anchor_BN.tolist() == [[0, 1, 0, 0, 0], [0] * 5]
    assert anchors.keep_BN.sum(dim=1).tolist() == [2, 0]
