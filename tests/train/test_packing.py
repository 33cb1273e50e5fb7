from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train.tiny_run import EOS, make_model, make_tokenizer, write_run
from train.attention import DenseMask
from train.batches import collate
from train.config import load_config
from train.contract import data_fingerprint
from train.data import Sample
from train.drafter import Drafter
from train.drafter_config import drafter_config_for
from train.features import FeatureStore
from train.inputs import load
from train.objective import DraftedBlocks, Objective, draft_blocks, draft_loss
from train.packing import documents_view, pack
from train.selftest import SelfTestError
from train.selftest_packing import check_packing
from train.slot_weights import DecayedWeights
from train.target import Target
from train.windows import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

BLOCK = 4


@pytest.fixture(scope="module", name="target")
def _target() -> Target:
    return Target(make_model(), make_tokenizer(), layer_ids=(1, 3))


@pytest.fixture(scope="module", name="drafter")
def _drafter(target: Target) -> Drafter:
    torch.manual_seed(3)
    config = drafter_config_for(
        target.config,
        num_layers=2,
        block_size=BLOCK,
        mask_token_id=3,
        target_layer_ids=target.layer_ids,
    )
    return Drafter(config)


def sample(index: int, num_tokens: int, *, seed: int = 0, question: int = 4) -> Sample:
    generator = torch.Generator().manual_seed(100 * seed + index)
    ids: list[int] = torch.randint(4, 260, (num_tokens,), generator=generator).tolist()
    return Sample(index, ids, supervised=[place >= question for place in range(num_tokens)])


@given(st.lists(st.integers(1, 40), max_size=40), st.randoms())
def test_every_conversation_is_in_one_row_and_rows_are_full(
    lengths: list[int], random: Any
) -> None:
    samples = [sample(i, length) for i, length in enumerate(lengths)]
    rows = pack(samples, length=40)
    found = []
    for row in rows:
        assert len(row.ids) == len(row.supervised) <= 40
        ends = (*row.document_starts[1:], len(row.ids))
        for start, end in zip(row.document_starts, ends, strict=True):
            found.append((row.ids[start:end], row.supervised[start:end]))
    assert sorted(found) == sorted((one.ids, one.supervised) for one in samples)
    assert len({row.index for row in rows}) == len(rows)
    # No two rows would fit into one.
    assert all(len(a.ids) + len(b.ids) > 40 for a, b in itertools.combinations(rows, 2))
    shuffled = list(samples)
    random.shuffle(shuffled)
    assert pack(shuffled, length=40) == rows


def test_a_batch_says_where_its_conversations_begin() -> None:
    (row,) = pack([sample(0, 3), sample(1, 2)], length=8)
    batch = collate([row, sample(2, 4)], rows=3, buckets=(8,), eos_id=EOS)
    assert batch.document_start_BS is not None
    assert batch.document_start_BS.tolist() == [
        [0, 0, 0, 3, 3, 5, 5, 5],
        [0, 0, 0, 0, 4, 4, 4, 4],
        [0] * 8,
    ]
    assert collate([sample(2, 4)], rows=3, buckets=(8,), eos_id=EOS).document_start_BS is None


def drafted(
    target: Target, drafter: Drafter, samples: list[Sample]
) -> tuple[DraftedBlocks, Tensor]:
    """Draft from every anchor of a batch; return the document starts as well."""
    batch = collate(samples, rows=len(samples), buckets=(64,), eos_id=EOS)
    features = FeatureStore(target, budget_bytes=0).features(batch)
    rows = rows_of(batch, features, seed=0, epoch=0)
    objective = Objective(num_anchors=64, weights=DecayedWeights(2.0), attention=DenseMask())
    return draft_blocks(drafter, target=target, rows=rows, objective=objective), rows.ids_BS


def blocks_of(
    target: Target, drafter: Drafter, samples: list[Sample]
) -> dict[tuple[int, int], tuple[Tensor, list[int]]]:
    """Return states and labels of each block, by conversation and place of its anchor in it."""
    found, _ = drafted(target, drafter, samples)
    hidden_BNKD = found.hidden_BQD.view(len(samples), -1, BLOCK, found.hidden_BQD.shape[-1])
    result = {}
    for row, one in enumerate(samples):
        for n in range(64):
            if not found.anchors.keep_BN[row, n]:
                continue
            start = int(found.anchors.context_start_BN[row, n])
            document = one.index + one.document_starts.index(start)
            labels = found.inputs.labels_BNK[row, n].tolist()
            place = int(found.anchors.anchor_BN[row, n]) - start
            result[document, place] = hidden_BNKD[row, n].detach(), labels
    return result


def test_packed_conversations_are_drafted_as_alone(target: Target, drafter: Drafter) -> None:
    samples = [sample(0, 20), sample(1, 25), sample(2, 12)]
    packed = pack(samples, length=64)
    assert len(packed) == 1
    together, alone = (blocks_of(target, drafter, one) for one in (packed, samples))
    assert together.keys() == alone.keys()
    assert len(alone) == 15 + 20 + 7
    for key, (hidden_KD, labels) in alone.items():
        assert together[key][1] == labels
        torch.testing.assert_close(together[key][0], hidden_KD, atol=2e-5, rtol=1e-5)


def test_nothing_leaks_from_other_conversations(target: Target, drafter: Drafter) -> None:
    rows = [
        pack([sample(0, 20, seed=seed), sample(1, 25), sample(2, 12, seed=seed)], length=64)
        for seed in (0, 1)
    ]
    one, other = (blocks_of(target, drafter, row) for row in rows)
    kept = [key for key in one if key[0] == 1]
    assert len(kept) == 20
    for key in kept:
        assert one[key][1] == other[key][1]
        assert torch.equal(one[key][0], other[key][0])
    assert not torch.equal(one[0, 8][0], other[0, 8][0])


def test_target_states_do_not_leak_either(target: Target) -> None:
    states = []
    for seed in (0, 1):
        (row,) = pack([sample(0, 20, seed=seed), sample(1, 25)], length=64)
        batch = collate([row], rows=1, buckets=(64,), eos_id=EOS)
        states.append(FeatureStore(target, budget_bytes=0).features(batch).tapped_BSF)
    assert torch.equal(states[0][:, 20:45], states[1][:, 20:45])
    assert not torch.equal(states[0][:, :20], states[1][:, :20])


def test_loss_of_a_packed_row_is_the_sum_of_its_conversations(
    target: Target, drafter: Drafter
) -> None:
    samples = [sample(0, 20), sample(1, 25)]
    sums = []
    for batch_of in (pack(samples, length=64), samples):
        batch = collate(batch_of, rows=len(batch_of), buckets=(64,), eos_id=EOS)
        features = FeatureStore(target, budget_bytes=0).features(batch)
        rows = rows_of(batch, features, seed=0, epoch=0)
        objective = Objective(num_anchors=64, weights=DecayedWeights(2.0), attention=DenseMask())
        sums.append(draft_loss(drafter, target=target, rows=rows, objective=objective))
    torch.testing.assert_close(sums[0].denominator, sums[1].denominator)
    torch.testing.assert_close(sums[0].numerator, sums[1].numerator, rtol=1e-5, atol=1e-5)


class Deaf(Target):
    """A target that sees everything before a token, whatever it is told."""

    def states(self, *arguments: Any, **_settings: Any) -> Any:
        return super().states(*arguments)


class Undefined(Target):
    """A target whose states are nan where it is told what to see."""

    def states(self, *arguments: Any, **settings: Any) -> Any:
        found = super().states(*arguments, **settings)
        return replace(found, tapped_BTF=found.tapped_BTF * torch.nan) if settings else found


@pytest.mark.parametrize("kind", [Deaf, Undefined])
def test_a_target_that_cannot_be_packed_is_refused(target: Target, kind: type[Target]) -> None:
    rows = [sample(0, 20).ids, sample(1, 25).ids]
    check_packing(target, rows)
    with pytest.raises(SelfTestError, match=r"data\.packing: states of a conversation"):
        check_packing(kind(make_model(), make_tokenizer(), layer_ids=(1, 3)), rows)


def test_a_token_sees_itself_and_its_own_past() -> None:
    view = documents_view(torch.tensor([[0, 0, 2, 2, 4]]))
    assert view.positions_BT.tolist() == [[0, 1, 0, 1, 0]]
    assert view.visible_BTS[0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
    ]


def test_a_run_packs_what_it_trains_on(tmp_path: Path) -> None:
    run_file = write_run(tmp_path)
    plain = load(load_config(run_file))
    packed = load(load_config(run_file, settings=["data.packing=true", "data.buckets=[128]"]))
    assert packed.training.num_conversations == len(plain.training.samples) == 6
    assert len(packed.training.samples) < 6
    assert packed.held_out == plain.held_out
    fingerprints = [data_fingerprint(one.training.samples) for one in (plain, packed)]
    assert all(text.startswith("6 usable conversations") for text in fingerprints)
    (first, *_) = packed.training.samples
    moved = replace(first, document_starts=(0, 1))
    assert data_fingerprint([first]) != data_fingerprint([moved])
