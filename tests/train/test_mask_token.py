from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.train.tiny_run import MASK, conversation, make_tokenizer, write_jsonl, write_run
from train.config import load_config
from train.inputs import load
from train.mask_token import candidate_tokens, unused_token
from train.selftest import SelfTestError
from train.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

NUM_TOKENS = 260


def test_a_row_that_no_text_can_hold_is_best() -> None:
    assert candidate_tokens(make_tokenizer(), num_rows=NUM_TOKENS + 4) == [NUM_TOKENS, MASK]


def test_tokens_with_a_part_to_play_are_no_candidates() -> None:
    tokenizer = make_tokenizer()
    assert candidate_tokens(tokenizer, num_rows=NUM_TOKENS) == [MASK]
    tokenizer.chat_template = "<|reserved|>" + tokenizer.chat_template
    assert candidate_tokens(tokenizer, num_rows=NUM_TOKENS) == []


def test_spare_names_go_before_others_and_late_before_early() -> None:
    tokenizer = make_tokenizer()
    names = ["<|tool|>", "<|unused_1|>", "<|file|>", "<|unused_2|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    by_name = tokenizer.get_vocab()
    wanted = ["<|unused_2|>", "<|unused_1|>", "<|reserved|>", "<|file|>", "<|tool|>"]
    found = candidate_tokens(tokenizer, num_rows=NUM_TOKENS + 4)
    assert found == [by_name[name] for name in wanted]
    used = {by_name[name] for name in wanted[:3]}
    assert unused_token(tokenizer, num_rows=NUM_TOKENS + 4, used=used) == by_name["<|file|>"]


def test_nothing_left_is_said_with_what_was_tried() -> None:
    with pytest.raises(ConfigError, match=r"mask_token_id: auto found no .* \[3\] is unused"):
        unused_token(make_tokenizer(), num_rows=NUM_TOKENS, used={MASK})


def test_a_run_chooses_by_itself_and_looks_at_its_data(tmp_path: Path) -> None:
    run_file = write_run(tmp_path)
    auto = ["draft.mask_token_id=auto"]
    inputs = load(load_config(run_file, settings=auto))
    assert inputs.pair.drafter.config.mask_token_id == MASK
    rows = [conversation("q", "abcdefgh<|reserved|>")] * 3
    write_jsonl(tmp_path / "held-out.jsonl", rows)
    with pytest.raises(ConfigError, match="auto found no token"):
        load(load_config(run_file, settings=auto))
    with pytest.raises(ConfigError, match=r"data\.held_out: found 0 usable rows"):
        load(load_config(run_file))
    write_jsonl(tmp_path / "held-out.jsonl", [*rows, *[conversation("q", "abcdefgh")] * 3])
    with pytest.raises(SelfTestError, match=r"draft\.mask_token_id: token 3 occurs in 3"):
        load(load_config(run_file))
