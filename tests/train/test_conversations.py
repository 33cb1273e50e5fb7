from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.conversations import Conversation, parse_line, read_conversations
from train.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

ASK = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"messages": [ASK, ANSWER]}, id="openai"),
        pytest.param({"conversations": [ASK, ANSWER], "id": 7}, id="conversations"),
        pytest.param(
            {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
            id="sharegpt",
        ),
    ],
)
def test_formats_of_a_conversation(row: dict[str, Any]) -> None:
    assert parse_line(json.dumps(row), where="f:1") == Conversation(messages=(ASK, ANSWER))


@pytest.mark.parametrize(("reason", "ends"), [("stop", True), ("length", False), (None, True)])
def test_a_cut_answer_does_not_end_its_turn(reason: str | None, ends: object) -> None:
    line = json.dumps({"messages": [ASK, ANSWER], "finish_reason": reason})
    assert parse_line(line, where="f:1").ends_turn is ends


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param("{", "f:1: not valid JSON", id="broken"),
        pytest.param("3", "f:1: found int, wanted a JSON object", id="number"),
        pytest.param("{}", "f:1: wanted a list of turns", id="no-messages"),
        pytest.param('{"messages": []}', "f:1: wanted a list of turns", id="no-turns"),
        pytest.param('{"messages": ["x"]}', "f:1: turn 0: wanted 'role'", id="text-turn"),
        pytest.param(
            '{"messages": [{"role": "user", "content": null}]}', "f:1: turn 0", id="no-content"
        ),
        pytest.param(
            '{"messages": [{"from": "robot", "value": "x"}]}', "f:1: turn 0", id="strange-speaker"
        ),
        pytest.param("[" * 100_000, "f:1: not valid JSON", id="deep"),
    ],
)
def test_bad_line_names_file_and_line(line: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_line(line, where="f:1")
    (found,) = caught.value.problems
    assert found.startswith(problem)


def test_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    # U+2028 ends a line for str.splitlines, but not in JSON lines.
    rows = [{"messages": [{"role": "user", "content": f"\u2028{i}"}]} for i in range(3)]
    path.write_text("\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")
    contents = [one.messages[0]["content"] for one in read_conversations(path)]
    assert contents == ["\u20280", "\u20281", "\u20282"]
    assert len(read_conversations(path, max_rows=2)) == 2


def test_lines_beyond_max_rows_are_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"messages": [ASK]}) + "\nbroken\n", "utf-8")
    assert len(read_conversations(path, max_rows=1)) == 1
    with pytest.raises(ConfigError, match=r"data\.jsonl:2: not valid JSON"):
        read_conversations(path)


def test_empty_and_missing_files_are_errors(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n", "utf-8")
    with pytest.raises(ConfigError, match="no conversations"):
        read_conversations(tmp_path / "empty.jsonl")
    with pytest.raises(ConfigError, match="cannot read"):
        read_conversations(tmp_path / "missing.jsonl")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["messages", "conversations", "role", "content", "from", "value"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_a_conversation_or_an_error(value: object) -> None:
    try:
        conversation = parse_line(json.dumps(value), where="f:1")
    except ConfigError as error:
        assert error.problems[0].startswith("f:1: ")
    else:
        assert conversation.messages
        assert all(set(turn) == {"role", "content"} for turn in conversation.messages)


@given(st.text(max_size=40))
def test_any_text_is_a_conversation_or_an_error(line: str) -> None:
    with pytest.raises(ConfigError):
        parse_line(line, where="f:1")
