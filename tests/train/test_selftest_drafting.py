from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

from tests.train.tiny_run import MASK
from tests.train.tiny_training import config_with, dataset_of, new_pair, tiny_target
from train.attention import DenseAttention, DenseMask
from train.config import EvalConfig
from train.drafter import Drafter
from train.objective import Objective, Rows
from train.selftest import SelfTestError, check_mask_token
from train.selftest_drafting import check_drafting, check_run
from train.settings import ConfigError
from train.slot_weights import DecayedWeights
from train.visibility import dense_mask

if TYPE_CHECKING:
    from train.anchors import Anchors
    from train.course import Pair

ANSWERS = ("abcabcabcabc" * 2, "hello hello hello", "0123456789" * 3)
BLOCK_SIZE = 4


@pytest.fixture(scope="module", name="pair")
def _pair() -> Pair:
    return new_pair(tiny_target())


@pytest.fixture(name="rows")
def _rows(pair: Pair) -> Rows:
    ids_BS = torch.randint(4, 200, (2, 30), generator=torch.Generator().manual_seed(0))
    loss_mask_BS = torch.arange(30) >= torch.tensor([[5], [12]])
    keys_BS = torch.rand(2, 30, generator=torch.Generator().manual_seed(1))
    return Rows(ids_BS, loss_mask_BS, keys_BS, pair.target.states(ids_BS).tapped_BTF)


@dataclass(frozen=True)
class WrongMask:
    """The training mask with a fault."""

    fault: str

    def __call__(
        self, anchors: Anchors, *, num_context: int, block_size: int, num_heads: int
    ) -> DenseAttention:
        del num_heads
        wrong = anchors
        if self.fault == "the-anchor's-own-states":
            wrong = dataclasses.replace(anchors, anchor_BN=anchors.anchor_BN + 1)
        elif self.fault == "one-token-less":
            wrong = dataclasses.replace(anchors, anchor_BN=anchors.anchor_BN - 1)
        mask = dense_mask(wrong, num_context=num_context, block_size=block_size)
        if self.fault == "the-next-block":
            q = torch.arange(mask.shape[2])[:, None]
            j = torch.arange(mask.shape[3]) - num_context
            mask = mask | ((j // block_size == q // block_size + 1) & (j >= 0))
        elif self.fault == "no-context":
            mask = mask & (torch.arange(mask.shape[3]) >= num_context)
        return DenseAttention(mask)


def objective(fault: str | None = None) -> Objective:
    attention = DenseMask() if fault is None else WrongMask(fault)
    return Objective(num_anchors=6, weights=DecayedWeights(2.0), attention=attention)


def test_passes_on_what_is_right(pair: Pair, rows: Rows) -> None:
    check_drafting(pair, rows=rows, objective=objective())


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("the-anchor's-own-states", "states from the anchor on"),
        ("the-next-block", "another block|states from the anchor on"),
        ("one-token-less", "training and cached decoding"),
        ("no-context", "do not change with the tokens and states before|cached decoding"),
    ],
)
def test_each_fault_of_the_mask_is_named(pair: Pair, rows: Rows, fault: str, words: str) -> None:
    with pytest.raises(SelfTestError, match=words):
        check_drafting(pair, rows=rows, objective=objective(fault))


def test_positions_that_decoding_does_not_have_are_noticed(
    pair: Pair, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Drafter.forward

    def shifted(self: Drafter, noise: torch.Tensor, **arguments: Any) -> torch.Tensor:
        if arguments.get("cache") is None:
            positions_BT = arguments["positions_BT"].clone()
            positions_BT[:, 30:] += 1
            arguments["positions_BT"] = positions_BT
        return forward(self, noise, **arguments)

    monkeypatch.setattr(Drafter, "forward", shifted)
    with pytest.raises(SelfTestError, match="training and cached decoding"):
        check_drafting(pair, rows=rows, objective=objective())


def test_rows_without_a_block_are_not_taken_for_a_pass(pair: Pair, rows: Rows) -> None:
    empty = dataclasses.replace(rows, loss_mask_BS=torch.zeros_like(rows.loss_mask_BS))
    with pytest.raises(SelfTestError, match="no block"):
        check_drafting(pair, rows=empty, objective=objective())


def test_packed_documents_pass(pair: Pair, rows: Rows) -> None:
    start_BS = torch.where(torch.arange(30) < 17, 0, 17).expand(2, -1)
    packed = dataclasses.replace(rows, document_start_BS=start_BS)
    check_drafting(pair, rows=packed, objective=objective())


def test_a_run_checks_its_own_held_out_rows(pair: Pair) -> None:
    samples = dataset_of(pair.target, ANSWERS).samples
    check_run(config_with(), pair=pair, samples=samples)


def test_blocks_that_do_not_fit_name_the_setting(pair: Pair) -> None:
    config = msgspec.structs.replace(config_with(), eval=EvalConfig(num_anchors=20_000))
    samples = dataset_of(pair.target, ANSWERS).samples
    with pytest.raises(ConfigError, match=r"eval\.num_anchors: dense attention"):
        check_run(config, pair=pair, samples=samples)


def test_a_mask_token_that_data_holds_is_named(pair: Pair) -> None:
    clean, held = (
        dataset_of(pair.target, answers) for answers in (["fine"], ["fine", "a<|reserved|>b"])
    )
    check_mask_token(MASK, {"train": clean, "held_out": clean})
    with pytest.raises(
        SelfTestError,
        match=rf"mask_token_id: token {MASK} occurs in 1 conversations of data\.train",
    ):
        check_mask_token(MASK, {"train": held, "held_out": clean})
