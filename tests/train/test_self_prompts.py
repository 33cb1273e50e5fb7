from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.train.tiny_run import EOS, conversation, make_tokenizer, write_jsonl
from tests.train.writing_target import writing_target
from train.__main__ import main
from train.journal import Journal
from train.near_duplicates import NearDuplicates, normalised
from train.replies import Reply, Request
from train.self_prompts import choose, judged, user_header_ids, write_prompts
from train.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from train.target import Target


@pytest.mark.parametrize(
    ("first", "second", "is_alike"),
    [
        pytest.param("What is the moon?", "what IS the  moon", True, id="same-words"),
        pytest.param(
            "Write a function that sorts a list.",
            "Please write a function that sorts a list of whole numbers quickly.",
            True,
            id="quoted",
        ),
        pytest.param("What is the moon?", "What is the price of tea?", False, id="other-subject"),
        pytest.param("Hello", "hello!", True, id="one-word"),
        pytest.param("Hello", "Goodbye", False, id="other-word"),
        pytest.param("\u4f60\u597d \u4e16\u754c \u518d\u89c1", "Hello", False, id="scripts"),
    ],
)
def test_alike(first: str, second: str, is_alike: object) -> None:
    for one, other in ((first, second), (second, first)):
        texts = NearDuplicates()
        texts.add(one)
        assert texts.holds_alike(other) is is_alike


def test_the_header_ends_where_a_user_begins() -> None:
    header = user_header_ids(writing_target())
    assert make_tokenizer().decode(header) == "<|im_start|>user\n"


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("{{ raise_exception('no') }}", id="raises"),
        pytest.param("{{ messages[0]['content'] }}", id="no-header"),
        pytest.param("nothing", id="says-nothing"),
    ],
)
def test_a_template_without_a_user_header_is_one_line(template: str) -> None:
    target = writing_target()
    target.tokenizer.chat_template = template
    with pytest.raises(ConfigError, match="chat template"):
        user_header_ids(target)


@pytest.mark.parametrize(
    ("text", "ended", "dropped"),
    [
        pytest.param("How deep is the sea?", True, None, id="good"),
        pytest.param("Mend this, please", True, "too short", id="few-words"),
        pytest.param("Mend this code, please:\n\n\tx = = 1", True, None, id="lines"),
        pytest.param("How deep is the sea", False, "cut off", id="cut"),
        pytest.param("tell me why and " * 5, True, "looping", id="loops"),
        pytest.param("How deep <|im_start|>is the sea?", True, "no user writes", id="special"),
        pytest.param("How deep is the \x07sea?", True, "no user writes", id="control"),
        pytest.param("1 2 3 4 5 6", True, "no user writes", id="no-letters"),
    ],
)
def test_judged(text: str, ended: bool, dropped: str | None) -> None:
    target = writing_target()
    reply = Reply(Request(key=7, prompt_ids=()), target.tokenizer(text)["input_ids"], ended=ended)
    entry = judged(reply, target)
    assert entry["attempt"] == 7
    assert (dropped in entry["dropped"]) if dropped else ("dropped" not in entry)


def attempt(number: int, text: str, **more: str) -> dict[str, Any]:
    return {"attempt": number, "text": text, **more}


def test_held_out_prompts_share_nothing_with_training() -> None:
    entries = [
        attempt(5, "Name three rivers of Asia, please."),
        attempt(0, "How deep is the sea?"),
        attempt(1, "How does an engine work?"),
        attempt(2, "how DEEP is the sea"),
        attempt(3, "Tell me: how deep is the sea near Japan?"),
        attempt(4, "How does an engine of a car work?", dropped="cut off"),
        attempt(6, "Who wrote the first dictionary?"),
        attempt(7, "Name three rivers of Asia, please!"),
    ]
    chosen = choose(entries, num_held_out=1, excluded=["Who wrote the first dictionary in Spain?"])
    assert list(chosen.held_out) == [0]
    assert list(chosen.training) == [1, 5]
    assert chosen.dropped == {
        "repeated": 2,
        "cut off": 1,
        "alike to a held-out or excluded prompt": 2,
    }


def options(folder: Path, **changes: Any) -> argparse.Namespace:
    settings = {
        "out": folder,
        "num": 12,
        "held_out": 3,
        "exclude": [],
        "seed": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_new_tokens": 60,
        "batch": 16,
        "every_seconds": 10.0,
    }
    return argparse.Namespace(**(settings | changes))


def wordy_target() -> Target:
    return writing_target(ends=-6.0, spaces=11.0)


@pytest.fixture(scope="module", name="talker")
def _talker() -> Target:
    return wordy_target()


def test_a_stopped_command_writes_the_same_prompts(talker: Target, tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, {}) as journal:
        whole = write_prompts(talker, journal, options(tmp_path))
    assert len(whole.held_out) == 3
    assert len(whole.training) >= 12
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) > 20
    # Any part of the work may be what is left of a stopped command.
    path.write_text("".join([lines[0], *lines[1::3]]))
    with Journal(path, {}) as journal:
        assert write_prompts(talker, journal, options(tmp_path, batch=5)) == whole


def test_asking_for_more_keeps_what_is_held_out(talker: Target, tmp_path: Path) -> None:
    with Journal(tmp_path / "j.jsonl", {}) as journal:
        few = write_prompts(talker, journal, options(tmp_path))
        many = write_prompts(talker, journal, options(tmp_path, num=20))
    assert many.held_out == few.held_out
    assert list(many.training.items())[:12] == list(few.training.items())[:12]


def test_a_target_that_writes_nothing_of_use_is_given_up(tmp_path: Path) -> None:
    target = writing_target(says="a")
    with (
        Journal(tmp_path / "j.jsonl", {}) as journal,
        pytest.raises(ConfigError, match=r"found 0 usable of .* written, wanted 15; dropped"),
    ):
        write_prompts(target, journal, options(tmp_path, max_new_tokens=4))


def test_the_command_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = wordy_target()
    target.model.save_pretrained(tmp_path / "model")
    target.tokenizer.save_pretrained(tmp_path / "model")
    write_jsonl(tmp_path / "known.jsonl", [conversation("How deep is the sea?", "Very.")])
    arguments = ["--target", str(tmp_path / "model"), "--out", str(tmp_path / "out")]
    arguments += ["--num", "8", "--held-out", "2", "--exclude", str(tmp_path / "known.jsonl")]
    arguments += ["--max-new-tokens", "60", "--top-p", "1", "--eos-token-id", str(EOS)]
    assert main(["self-prompts", *arguments]) == 0
    assert "held-out: 2 prompts\ntrain: 8 prompts\n" in capsys.readouterr().err
    rows = {
        split: [
            json.loads(line)
            for line in (tmp_path / "out" / f"{split}.prompts.jsonl").read_text().splitlines()
        ]
        for split in ("train", "held-out")
    }
    texts = [row["messages"][0]["content"] for row in rows["train"] + rows["held-out"]]
    assert len({normalised(text) for text in texts}) == 10
    assert len({row["id"] for row in rows["train"] + rows["held-out"]}) == 10
    assert main(["self-prompts", *arguments, "--seed", "5"]) == 2
    assert "begun with seed = 0, asked for 5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["--num", "0"], "argument --num: found 0", id="none"),
        pytest.param(["--temperature", "nan"], "argument --temperature: found nan", id="nan"),
        pytest.param(["--top-p", "1.1"], "argument --top-p: found 1.1", id="over-one"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--target", "./none", "--num", "2", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as caught:
        main(["self-prompts", *given, *arguments])
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param([], "--target: nothing at ./none", id="no-target"),
        pytest.param(["--temperature", "0"], "--temperature: found 0", id="greedy"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_made(
    arguments: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--target", "./none", "--num", "2", "--out", str(tmp_path / "out")]
    assert main(["self-prompts", *given, *arguments]) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
