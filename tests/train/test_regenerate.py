from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.train.tiny_run import EOS, make_model, make_tokenizer, write_jsonl
from train.__main__ import main
from train.looping import is_looping
from train.prompts import Prompt, without_duplicates, written_prompts
from train.regenerate import judge, prompt_messages, read_rows, regenerate
from train.target import Target

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module", name="tiny")
def _tiny() -> Target:
    """A random model that says ASCII: bytes at random would be no text."""
    model, tokenizer = make_model(), make_tokenizer()
    is_letter = [
        token.isascii() and token.isalnum() for token in tokenizer.convert_ids_to_tokens(range(260))
    ]
    with torch.no_grad():
        model.lm_head.weight[~torch.tensor(is_letter)] = 0.0
    return Target(model, tokenizer, layer_ids=(1,))


def options(folder: Path, **changes: Any) -> argparse.Namespace:
    settings = {
        "prompts": folder / "prompts.jsonl",
        "out": folder / "out.jsonl",
        "batch": 2,
        "max_new_tokens": 6,
    }
    return argparse.Namespace(**(settings | changes))


def write_prompts(folder: Path, num_prompts: int) -> None:
    rows = [
        {"id": f"p{i}", "messages": [{"role": "user", "content": "q" * (num_prompts - i)}]}
        for i in range(num_prompts)
    ]
    write_jsonl(folder / "prompts.jsonl", rows)


def test_answers_are_the_greedy_ones_of_each_prompt_alone(tiny: Target, tmp_path: Path) -> None:
    write_prompts(tmp_path, 5)
    counts = regenerate(tiny, options(tmp_path))
    rows = read_rows(tmp_path / "out.jsonl")
    assert counts["kept"] == len(rows) > 0
    for row in rows:
        ids = tiny.tokenizer.apply_chat_template(
            row["messages"][:1], add_generation_prompt=True, return_dict=False
        )
        tokens: list[int] = []
        for _ in range(6):
            final = tiny.states(torch.tensor([ids + tokens])).final_BTD[0, -1]
            tokens.append(int(tiny.logits(final).argmax()))
        if EOS in tokens:
            tokens = tokens[: tokens.index(EOS)]
        assert row["messages"][1] == {
            "role": "assistant",
            "content": tiny.tokenizer.decode(tokens),
        }


def test_a_stopped_run_continues_and_keeps_the_order(tiny: Target, tmp_path: Path) -> None:
    write_prompts(tmp_path, 5)
    regenerate(tiny, options(tmp_path))
    whole = (tmp_path / "out.jsonl").read_text()
    ids = [row["id"] for row in read_rows(tmp_path / "out.jsonl")]
    assert ids == sorted(ids)
    first_two = "".join(whole.splitlines(keepends=True)[:2])
    (tmp_path / "out.jsonl").write_text(first_two)
    counts = regenerate(tiny, options(tmp_path))
    assert counts["kept"] == len(ids) - 2
    assert (tmp_path / "out.jsonl").read_text() == whole


@pytest.mark.parametrize(
    ("text", "is_bad"),
    [
        pytest.param("One thing. Another thing. A third.", False, id="prose"),
        pytest.param("so it goes on and so it goes on. " * 3, True, id="phrases"),
        pytest.param("".join(f"{i}. Aloe\n" for i in range(4)), True, id="numbered-lines"),
        pytest.param("".join(f"{i}. Aloe\n" for i in range(3)), False, id="three-lines"),
        pytest.param("", False, id="empty"),
    ],
)
def test_looping(text: str, is_bad: object) -> None:
    ids = make_tokenizer()(text)["input_ids"]
    assert is_looping(ids, text) is is_bad


@pytest.mark.parametrize(
    ("text", "reason", "dropped"),
    [
        pytest.param("abc<|im_end|>", "stop", "", id="ended"),
        pytest.param("abc", "length", "", id="cut"),
        pytest.param(" \n<|im_end|>", "stop", "empty", id="empty"),
        pytest.param("abcdefgh" * 3, "length", "looping", id="looping"),
    ],
)
def test_judge(tiny: Target, text: str, reason: str, dropped: str) -> None:
    answer = judge(tiny, [1, 2], tiny.tokenizer(text)["input_ids"])
    assert (answer.finish_reason, answer.dropped) == (reason, dropped)
    assert "<|im_end|>" not in answer.text


def test_answer_that_reads_back_differently_is_dropped(tiny: Target) -> None:
    # Half of a two-byte character decodes to the replacement character.
    half = tiny.tokenizer("\u00e9")["input_ids"][:1]
    assert judge(tiny, [1], half).dropped == "tokens change when read back"


def test_old_answers_are_not_part_of_the_prompt() -> None:
    messages = [
        {"role": role, "content": role} for role in ("system", "user", "assistant", "user", "x")
    ]
    assert prompt_messages({"messages": messages}) == messages[:4]
    with pytest.raises(ValueError, match="no user message"):
        prompt_messages({"id": 1, "messages": messages[:1]})


def test_held_out_items_stay_out_of_training(tmp_path: Path) -> None:
    topics = tmp_path / "topics.toml"
    topics.write_text(
        '[kind]\ntemplates = ["A {}.", "B {}?"]\nheld_out = 2\nitems = ["x", "y", "z"]\n'
    )
    prompts = list(written_prompts(topics))
    assert [(one.split, one.text) for one in prompts] == [
        ("held-out", "A x."),
        ("held-out", "B y?"),
        ("train", "A z."),
        ("train", "B z?"),
    ]


def test_a_repeated_prompt_stays_where_it_is_held_out() -> None:
    prompts = [
        Prompt(id="1", split="train", source="s", text="What is it?"),
        Prompt(id="2", split="held-out", source="s", text="what  is IT"),
    ]
    assert [one.id for one in without_duplicates(prompts)] == ["2"]
    assert json.loads(prompts[0].to_json())["messages"][0]["content"] == "What is it?"


def test_missing_prompts_and_target_are_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out.jsonl")]
    missing = str(tmp_path / "prompts.jsonl")
    for prompts, target, problem in (
        (missing, "x", f"--prompts {missing}: no such file"),
        (__file__, "package:no_such_package/x.gguf", "package 'no_such_package' is not installed"),
    ):
        assert main(["regenerate", "--prompts", prompts, "--target", target, *out]) == 2
        error = capsys.readouterr().err
        assert problem in error
        assert error.count("\n") == 1
