from __future__ import annotations

import gzip
import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.conversations import (
    MAX_SHOWN_PROBLEMS,
    Conversation,
    parse_row,
    read_conversations,
)
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
        pytest.param(
            {"messages": [{**ASK, "content": [{"type": "text", "text": "q"}]}, ANSWER]}, id="parts"
        ),
        pytest.param(
            {"messages": None, "conversations": [ASK, {**ANSWER, "from": None}]}, id="columns"
        ),
    ],
)
def test_formats_of_a_conversation(row: dict[str, Any]) -> None:
    assert parse_row(row, where="f:1") == Conversation(messages=(ASK, ANSWER))


@pytest.mark.parametrize(("reason", "ends"), [("stop", True), ("length", False), (None, True)])
def test_a_cut_answer_does_not_end_its_turn(reason: str | None, ends: object) -> None:
    row = {"messages": [ASK, ANSWER], "finish_reason": reason}
    assert parse_row(row, where="f:1").ends_turn is ends


@pytest.mark.parametrize("thinking", [True, False, None])
def test_the_thinking_mode_is_known(thinking: object) -> None:
    row = {"messages": [ASK, ANSWER], "thinking": thinking}
    assert parse_row(row, where="f:1").thinking is thinking


def test_system_turns_of_sharegpt_are_kept() -> None:
    turns = [{"from": name, "value": name} for name in ("system", "human", "gpt")]
    roles = [one["role"] for one in parse_row({"conversations": turns}, where="f:1").messages]
    assert roles == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param("{", "not valid JSON", id="broken"),
        pytest.param(
            "[1,",
            "not valid JSON: Expecting value: line 2 column 1 (char 4); wanted"
            " one JSON object a line",
            id="list",
        ),
        pytest.param("3", "found int, wanted a JSON object", id="number"),
        pytest.param("{}", "found keys [], wanted a list of turns", id="no-messages"),
        pytest.param('{"text": 1}', 'found keys ["text"], wanted', id="other-keys"),
        pytest.param('{"messages": []}', "found messages: [], wanted a list", id="no-turns"),
        pytest.param('{"messages": {"a": 1}}', 'found messages: {"a": 1}', id="table"),
        pytest.param('{"messages": ["x"]}', "turn 0: found \"x\", wanted 'role'", id="text-turn"),
        pytest.param(
            '{"messages": [{"role": "user", "content": null}]}', "turn 0: found", id="no-content"
        ),
        pytest.param(
            '{"messages": [{"from": "robot", "value": "x"}]}',
            'turn 0: found from: "robot", wanted one of human, user, gpt,',
            id="strange-speaker",
        ),
        pytest.param(
            '{"messages": [{"role": "user", "content": [{"type": "image"}]}]}',
            "turn 0: found",
            id="image",
        ),
        pytest.param(
            '{"thinking": 1, "messages": [{"role": "user", "content": ""}]}',
            "found thinking: 1, wanted true or false",
            id="thinking",
        ),
        pytest.param(
            '{"messages": [{"role": "user", "content": "\\ud800"}]}',
            "turn 0: found half of a surrogate pair",
            id="half-a-pair",
        ),
        pytest.param("[{}]", "found list, wanted a JSON object; wanted one", id="whole-list"),
        pytest.param(
            '{"messages": [{"role": "assistant", "content": null, "tool_calls": "x"}]}',
            'turn 0: found tool_calls: "x", wanted a list of objects',
            id="tool-calls",
        ),
        pytest.param(
            '{"tools": [1], "messages": [{"role": "user", "content": "q"}]}',
            "found tools: [1], wanted a list of objects",
            id="tools",
        ),
        pytest.param("[" * 100_000, "not valid JSON", id="deep"),
        pytest.param("\ud800", "not valid JSON", id="surrogate"),
    ],
)
def test_bad_line_names_file_and_line(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("\n" + line + "\n", "utf-8", errors="replace")
    with pytest.raises(ConfigError) as caught:
        read_conversations(path)
    (found,) = caught.value.problems
    assert found.startswith(f"{path}:2: {problem}")


@pytest.mark.parametrize("name", ["data.jsonl", "data.jsonl.gz"])
def test_bytes_that_are_no_utf8_name_their_lines(name: str, tmp_path: Path) -> None:
    good = json.dumps({"messages": [ASK, ANSWER]}).encode()
    data = good + b"\n" + good.replace(b'"q"', b'"caf\xe9"') + b"\n" + good + b"\n\xff\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(ConfigError) as caught:
        read_conversations(path)
    place = data.splitlines()[1].index(b"\xe9") + 1
    assert list(caught.value.problems) == [
        f"{path}:2: not valid UTF-8: found byte 0xe9 at character {place}",
        f"{path}:4: not valid UTF-8: found byte 0xff at character 1",
    ]


def test_tool_calls_are_kept_as_templates_want_them() -> None:
    function = {"name": "look", "arguments": '{"at": "sky"}'}
    turns = [
        ASK,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]},
        {"role": "tool", "content": "blue", "tool_call_id": "1", "name": None},
        {**ANSWER, "tool_calls": None, "reasoning_content": "so"},
    ]
    tools = [{"type": "function", "function": {"name": "look"}}]
    found = parse_row({"messages": turns, "tools": tools}, where="f:1")
    parsed = {"name": "look", "arguments": {"at": "sky"}}
    assert found.messages == (
        ASK,
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": parsed}]},
        {"role": "tool", "content": "blue", "tool_call_id": "1"},
        {**ANSWER, "reasoning_content": "so"},
    )
    # Tables of strings hold JSON.
    as_text = parse_row({"messages": turns, "tools": json.dumps(tools)}, where="f:1")
    assert as_text.tools == found.tools == tuple(tools)


def test_all_bad_lines_are_said_at_once_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    good = json.dumps({"messages": [ASK]})
    path.write_text(f"{good}\nbad\n{good}\n{{}}", "utf-8")
    with pytest.raises(ConfigError) as caught:
        read_conversations(path)
    assert [one.split(": ")[0] for one in caught.value.problems] == [f"{path}:2", f"{path}:4"]
    path.write_text("bad\n" * 1000, "utf-8")
    with pytest.raises(ConfigError) as caught:
        read_conversations(path)
    assert len(caught.value.problems) == MAX_SHOWN_PROBLEMS + 1
    assert caught.value.problems[-1] == f"{path}: and 980 more rows like these"


def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"messages": [ASK, ANSWER]}) + "\r\n", "utf-8-sig")
    assert read_conversations(path) == [Conversation(messages=(ASK, ANSWER))]


def test_compressed_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(json.dumps({"messages": [ASK, ANSWER]}) + "\n")
    assert read_conversations(path) == [Conversation(messages=(ASK, ANSWER))]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ConfigError, match="cannot read the data file"):
        read_conversations(path)
    path.write_text("plain")
    with pytest.raises(ConfigError, match="cannot read the data file"):
        read_conversations(path)


@pytest.mark.skipif(importlib.util.find_spec("datasets") is not None, reason="it is installed")
@pytest.mark.parametrize("source", ["data.parquet", "hub:owner/name", "hub:owner/name/config:test"])
def test_without_datasets_it_is_named(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.parquet").write_text("")
    with pytest.raises(ConfigError, match=f"{source}: needs the package datasets"):
        read_conversations(source)


@pytest.mark.parametrize("source", ["hub:", "hub:name", "hub:/name", "hub:owner/", "hub::train"])
def test_a_hub_name_is_whole(source: str) -> None:
    with pytest.raises(ConfigError, match="wanted hub:OWNER/NAME"):
        read_conversations(source)


def test_parquet_gives_the_same_conversations(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"messages": [ASK, ANSWER]}, {"messages": [ASK]}]
    path = tmp_path / "data.parquet"
    datasets.Dataset.from_list(rows).to_parquet(path)
    wanted = [Conversation(messages=(ASK, ANSWER)), Conversation(messages=(ASK,))]
    assert read_conversations(path) == wanted
    assert read_conversations(path, max_rows=1) == wanted[:1]
    path.write_text("no parquet")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        read_conversations(path)


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
        conversation = parse_row(value, where="f:1")
    except ConfigError as error:
        (problem,) = error.problems
        assert problem.startswith("f:1: ")
        assert len(problem.splitlines()) == 1
    else:
        assert conversation.messages
        assert all(set(turn) == {"role", "content"} for turn in conversation.messages)
