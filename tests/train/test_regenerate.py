from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.train.tiny_run import CHAT_TEMPLATE, EOS, make_tokenizer, write_jsonl
from tests.train.writing_target import writing_target
from train.__main__ import main
from train.conversations import Row, parse_row
from train.dialogue import Answering, Dialogue
from train.looping import is_looping, tokens_before_loop
from train.prompts import Prompt, without_duplicates, written_prompts
from train.regenerate import regenerate
from train.replies import Reply
from train.settings import ConfigError

if TYPE_CHECKING:
    from train.target import Target

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", name="tiny")
def _tiny() -> Target:
    return writing_target(ends=-4.0)


def options(folder: Path, **changes: Any) -> argparse.Namespace:
    settings = {
        "target": "tiny",
        "eos_token_id": None,
        "prompts": str(folder / "prompts.jsonl"),
        "out": folder / "out.jsonl",
        "batch": 3,
        "max_new_tokens": 8,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
        "thinking": "default",
        "loops": "drop",
        "every_seconds": 10.0,
    }
    return argparse.Namespace(**(settings | changes))


def asked(*turns: str) -> list[dict[str, str]]:
    """Turns, `a:` and `s:` in front of those of the assistant and the system."""
    roles = {"a": "assistant", "s": "system", "t": "tool", "u": "user"}
    return [{"role": roles[turn[0]], "content": turn[2:]} for turn in turns]


def write_prompts(folder: Path, num_prompts: int) -> None:
    rows = [
        {"id": f"p{i}", "source": "s", "messages": asked("u:" + "q" * (num_prompts - i))}
        for i in range(num_prompts)
    ]
    write_jsonl(folder / "prompts.jsonl", rows)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def greedy_answer(tiny: Target, messages: list[dict[str, str]], num_tokens: int) -> str:
    ids = tiny.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    tokens: list[int] = []
    for _ in range(num_tokens):
        final = tiny.states(torch.tensor([ids + tokens])).final_BTD[0, -1]
        tokens.append(int(tiny.logits(final).argmax()))
    if EOS in tokens:
        tokens = tokens[: tokens.index(EOS)]
    text: str = tiny.tokenizer.decode(tokens)
    return text


def test_answers_are_the_greedy_ones_of_each_prompt_alone(tiny: Target, tmp_path: Path) -> None:
    write_prompts(tmp_path, 7)
    counts = regenerate(options(tmp_path), tiny)
    rows = read_lines(tmp_path / "out.jsonl")
    assert counts["kept"] == len(rows) > 4
    assert counts.total() == 7
    for row in rows:
        answer = {"role": "assistant", "content": greedy_answer(tiny, row["messages"][:1], 8)}
        assert row["messages"][1:] == [answer]
        assert row["source"] == "s"
        assert "thinking" not in row
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert {row["finish_reason"] for row in rows} <= {"length", "stop"}


def test_every_answer_is_written_anew_on_top_of_the_new_ones(tmp_path: Path) -> None:
    target = writing_target(ends=-1.0)
    turns = ("a:OLD", "a:OLD", "u:two", "a:OLD", "u:three", "a:OLD", "s:x")
    rows = [{"messages": asked("s:be", f"u:{i}", *turns)} for i in range(8)]
    write_jsonl(tmp_path / "prompts.jsonl", rows)
    regenerate(options(tmp_path, max_new_tokens=24), target)
    sizes = set()
    for row in read_lines(tmp_path / "out.jsonl"):
        messages = row["messages"]
        sizes.add(len(messages))
        roles = ["system", *["user", "assistant"] * 3]
        assert [one["role"] for one in messages] == roles[: len(messages)]
        for place in range(2, len(messages), 2):
            assert messages[place]["content"] == greedy_answer(target, messages[:place], 24)
    assert 7 in sizes


def test_a_cut_answer_is_the_last(
    tiny: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = asked("u:one", "a:OLD", "u:two", "a:OLD")
    write_jsonl(tmp_path / "prompts.jsonl", [{"messages": turns}])
    regenerate(options(tmp_path, max_new_tokens=1), tiny)
    (row,) = read_lines(tmp_path / "out.jsonl")
    assert len(row["messages"]) == 2
    assert row["finish_reason"] == "length"
    assert "no answer ended its turn: look at --eos-token-id" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        pytest.param(["s:x", "a:y"], "no user turn", id="no-question"),
        pytest.param(["u:x", "t:y"], "holds a turn of role 'tool'", id="tool"),
        pytest.param(["u:" + "x" * 300], "longer than the target's context", id="long"),
    ],
)
def test_rows_that_cannot_be_answered_are_counted(
    turns: list[str], reason: str, tiny: Target, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "prompts.jsonl", [{"messages": asked(*turns)}])
    assert regenerate(options(tmp_path), tiny) == {reason: 1}
    assert (tmp_path / "out.jsonl").read_text() == ""


def test_a_stopped_run_continues_and_asks_nothing_twice(tiny: Target, tmp_path: Path) -> None:
    write_prompts(tmp_path, 7)
    sampled = options(tmp_path, temperature=1.0)
    counts = regenerate(sampled, tiny)
    assert counts.total() == 7
    whole = sampled.out.read_bytes()
    journal = tmp_path / "out.journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    assert len(lines) == 8
    for kept in ([0], [0, 2, 5], [0, *range(2, 8)]):
        sampled.out.unlink()
        journal.write_text("".join(lines[number] for number in kept))
        assert regenerate(options(tmp_path, temperature=1.0, batch=2), tiny) == counts
        assert sampled.out.read_bytes() == whole
        assert sorted(journal.read_text().splitlines(keepends=True)) == sorted(lines)
    # Nothing is left to ask, so that no target is needed.
    assert regenerate(sampled) == counts


def test_new_and_changed_prompts_are_answered_beside_the_old(tiny: Target, tmp_path: Path) -> None:
    write_prompts(tmp_path, 4)
    regenerate(options(tmp_path), tiny)
    rows = read_lines(tmp_path / "prompts.jsonl")
    rows[0]["messages"] = asked("u:new")
    rows.append({"id": "more", "messages": asked("u:more")})
    write_jsonl(tmp_path / "prompts.jsonl", rows)
    counts = regenerate(options(tmp_path), tiny)
    assert counts.total() == 5
    assert len((tmp_path / "out.journal.jsonl").read_text().splitlines()) == 1 + 4 + 2
    questions = [row["messages"][0]["content"] for row in read_lines(tmp_path / "out.jsonl")]
    wanted = [row["messages"][0]["content"] for row in rows]
    assert questions == [one for one in wanted if one in questions]


def test_other_settings_and_foreign_files_are_refused(tiny: Target, tmp_path: Path) -> None:
    write_prompts(tmp_path, 2)
    regenerate(options(tmp_path), tiny)
    with pytest.raises(ConfigError, match=r"begun with thinking = .default., asked for .on."):
        regenerate(options(tmp_path, thinking="on"), tiny)
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text("mine")
    with pytest.raises(ConfigError, match=r"without foreign\.journal\.jsonl"):
        regenerate(options(tmp_path, out=foreign), tiny)
    assert foreign.read_text() == "mine"


def test_the_thinking_mode_reaches_the_template_and_the_row(tmp_path: Path) -> None:
    target = writing_target()
    target.tokenizer.chat_template = CHAT_TEMPLATE.replace(
        "<|im_start|>assistant\n{% endif %}",
        "<|im_start|>assistant\n{{ '' if enable_thinking else 'aa' }}{% endif %}",
    )
    write_jsonl(tmp_path / "prompts.jsonl", [{"messages": asked("u:one")}])
    counts = regenerate(options(tmp_path, thinking="off"), target)
    assert counts == {"the template changes the answer": 1}
    target.tokenizer.chat_template = target.tokenizer.chat_template.replace("'aa'", "''")
    out = tmp_path / "on.jsonl"
    regenerate(options(tmp_path, thinking="on", out=out), target)
    assert [row["thinking"] for row in read_lines(out)] == [True]


def test_tools_reach_the_template_and_the_row(tmp_path: Path) -> None:
    target = writing_target()
    tools = [{"type": "function", "function": {"name": "look"}}]
    write_jsonl(tmp_path / "prompts.jsonl", [{"messages": asked("u:one"), "tools": tools}])
    counts = regenerate(options(tmp_path), target)
    assert counts == {"the template leaves out the tools": 1}
    template = target.tokenizer.chat_template
    target.tokenizer.chat_template = "{{ tools | tojson if tools else '' }}" + template
    out = tmp_path / "told.jsonl"
    regenerate(options(tmp_path, out=out), target)
    (row,) = read_lines(out)
    assert row["tools"] == tools
    told = [{"role": "system", "content": "x"}]  # only to see that the prompt was another one
    assert row["messages"][-1]["content"] != greedy_answer(target, told, 8)
    assert target.tokenizer.apply_chat_template(
        row["messages"], tools=tools, tokenize=False
    ).startswith('[{"type": "function"')


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
    ("text", "kept"),
    [
        pytest.param("so it goes. " * 5, "so it goes. so it goes. so it g", id="phrases"),
        pytest.param(
            "1. Aloe\n2. Aloe\n3. Aloe\n4. Aloe", "1. Aloe\n2. Aloe\n3. Aloe\n4. Alo", id="lines"
        ),
        pytest.param("One thing. Another.", "One thing. Another.", id="prose"),
        pytest.param("", "", id="empty"),
    ],
)
def test_longest_part_that_does_not_loop(text: str, kept: str) -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids[: tokens_before_loop(ids, tokenizer.decode)]) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("abcdefgh" * 5, "abcdefgh" * 2 + "abcdefg", id="loop"),
        # The eleventh of these bytes is half a character.
        pytest.param("\u00e9" * 9, "\u00e9" * 5, id="cut-where-it-reads-back"),
    ],
)
def test_a_loop_is_cut_on_request(tiny: Target, text: str, kept: str) -> None:
    answering = Answering(tiny, max_new_tokens=60, cuts_loops=True)
    raw = {"messages": asked("u:x", "a:y", "u:z")}
    dialogue = Dialogue.of(Row("f:1", raw, parse_row(raw, where="f:1")))
    request = answering.ask(dialogue)
    assert request is not None
    answering.take(Reply(request, tiny.tokenizer(text)["input_ids"], ended=True))
    assert dialogue.messages[-1]["content"] == kept
    assert dialogue.finish_reason == "length"
    assert not dialogue.questions
    assert not dialogue.dropped


def test_a_prompt_is_written_by_the_template_once(
    tiny: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an answer that is cut as for any other."""
    opened = []
    template = tiny.tokenizer.apply_chat_template

    def counted(*turns: Any, **how: Any) -> Any:
        opened.append(how["add_generation_prompt"])
        return template(*turns, **how)

    monkeypatch.setattr(tiny.tokenizer, "apply_chat_template", counted)
    answering = Answering(tiny, max_new_tokens=60, cuts_loops=True)
    raw = {"messages": asked("u:x")}
    request = answering.ask(Dialogue.of(Row("f:1", raw, parse_row(raw, where="f:1"))))
    assert request is not None
    answering.take(Reply(request, tiny.tokenizer("abcdefgh" * 5)["input_ids"], ended=True))
    assert opened.count(True) == 1


def test_answer_that_the_template_refuses_is_dropped(
    tiny: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = CHAT_TEMPLATE + (
        "{% if messages[-1].role == 'assistant' %}{{ raise_exception('no answers') }}{% endif %}"
    )
    monkeypatch.setattr(tiny.tokenizer, "chat_template", refusing)
    answering = Answering(tiny, max_new_tokens=60)
    raw = {"messages": asked("u:x")}
    request = answering.ask(Dialogue.of(Row("f:1", raw, parse_row(raw, where="f:1"))))
    assert request is not None
    dialogue = answering.take(Reply(request, tiny.tokenizer("abc")["input_ids"], ended=True))
    assert dialogue.dropped == "the template refuses the turns"


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        pytest.param([asked("s:be")], 1, id="none"),
        pytest.param([asked("s:be"), asked("u:x")], 0, id="one"),
    ],
)
def test_no_row_kept_is_a_failure(
    tiny: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[Any], code: int
) -> None:
    tiny.model.save_pretrained(tmp_path / "model")
    tiny.tokenizer.save_pretrained(tmp_path / "model")
    write_jsonl(tmp_path / "prompts.jsonl", [{"messages": turns} for turns in rows])
    arguments = ["--prompts", tmp_path / "prompts.jsonl", "--out", tmp_path / "out.jsonl"]
    model = ["--target", tmp_path / "model", "--device", "cpu", "--max-new-tokens", "4"]
    again = ["regenerate", *map(str, [*arguments, *model])]
    for _ in range(2):
        assert main(again) == code
        said = capsys.readouterr().err
        assert ("no row was kept" in said) is bool(code)
        assert "1 no user turn" in said


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        pytest.param("abc", "", id="good"),
        pytest.param(" \n", "empty", id="empty"),
        pytest.param("abcdefgh" * 3, "looping", id="looping"),
        # Half of a two-byte character decodes to the replacement character.
        pytest.param("\u00e9", "tokens change when read back", id="half-a-character"),
    ],
)
def test_answers_of_no_use(tiny: Target, text: str, dropped: str) -> None:
    answering = Answering(tiny, max_new_tokens=30)
    raw = {"messages": asked("u:x")}
    dialogue = Dialogue.of(Row("f:1", raw, parse_row(raw, where="f:1")))
    request = answering.ask(dialogue)
    assert request is not None
    ids = tiny.tokenizer(text)["input_ids"]
    answering.take(Reply(request, ids[:1] if text == "\u00e9" else ids, ended=True))
    assert dialogue.dropped == dropped
    assert bool(dialogue.messages) is not bool(dropped)


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


@pytest.mark.slow
def test_a_kill_loses_no_finished_answer(tmp_path: Path) -> None:
    target = writing_target()
    target.model.save_pretrained(tmp_path / "model")
    target.tokenizer.save_pretrained(tmp_path / "model")
    write_prompts(tmp_path, 40)
    command = [sys.executable, "-m", "train", "regenerate", "--target", str(tmp_path / "model")]
    command += ["--prompts", str(tmp_path / "prompts.jsonl"), "--out", str(tmp_path / "out.jsonl")]
    command += ["--batch", "2", "--max-new-tokens", "60", "--temperature", "1", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)
    journal = tmp_path / "out.journal.jsonl"
    while process.poll() is None and (
        not journal.exists() or journal.read_bytes().count(b"\n") < 5
    ):
        time.sleep(0.02)
    process.kill()
    process.communicate()
    before = journal.read_text()
    assert not (tmp_path / "out.jsonl").exists()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    whole = before[: before.rindex("\n") + 1]
    assert journal.read_text().startswith(whole)
    killed = (tmp_path / "out.jsonl").read_bytes()
    journal.unlink()
    (tmp_path / "out.jsonl").unlink()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    assert (tmp_path / "out.jsonl").read_bytes() == killed


def test_missing_prompts_and_target_are_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts_file = tmp_path / "some.jsonl"
    write_jsonl(prompts_file, [{"messages": asked("u:x")}])
    out = ["--out", str(tmp_path / "out.jsonl")]
    missing = str(tmp_path / "prompts.jsonl")
    for prompts, target, problem in (
        (missing, "x", f"{missing}: cannot read the data file"),
        (
            str(prompts_file),
            "package:no_such_package/x.gguf",
            "package 'no_such_package' is not installed",
        ),
    ):
        assert main(["regenerate", "--prompts", prompts, "--target", target, *out]) == 2
        error = capsys.readouterr().err
        assert problem in error
        assert error.count("\n") == 1
