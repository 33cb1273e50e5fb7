"""Read conversations from data rows; imports no torch.

A row is an object with `messages`, turns of `role` and `content`, as OpenAI writes them; or with
`conversations`, whose turns may be ShareGPT's `from` (system, human, gpt) and `value`. Turns may
call tools (`tool_calls`), and a row may say which `tools` there are.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from train.data_rows import LIST_HINT, data_rows
from train.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
}
_KEPT_OF_A_TURN = ("name", "tool_call_id", "reasoning_content")
MAX_SHOWN_PROBLEMS = 20
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class Conversation:
    """One row of a data file.

    Args:
        messages: Turns, each with `role` and `content`, and what else chat templates look at.
        ends_turn: False when the last answer was cut off by a length limit, so that the target did
            not choose to end its turn there.
        thinking: Mode in which the answers were written, which the chat template must be told;
            None where nothing is known, or nothing to be told.
        tools: What the assistant may call, as OpenAI describes functions.
    """

    messages: tuple[dict[str, Any], ...]
    ends_turn: bool = True
    thinking: bool | None = None
    tools: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Row:
    """A conversation with what else its row holds.

    Args:
        where: Source and place.
        raw: The row.
        conversation: What it says.
    """

    where: str
    raw: dict[str, Any]
    conversation: Conversation


def read_conversations(source: Path | str, *, max_rows: int | None = None) -> list[Conversation]:
    """Read the conversations of a source.

    Args:
        source: See `data_rows`.
        max_rows: Conversations to read at most; None reads all.

    Raises:
        ConfigError: See `read_rows`.
    """
    return [row.conversation for row in read_rows(source, max_rows=max_rows)]


def read_rows(source: Path | str, *, max_rows: int | None = None) -> list[Row]:
    """Read the conversations of a source, with their rows.

    Args:
        source: See `data_rows`.
        max_rows: Rows to read at most; None reads all.

    Raises:
        ConfigError: Rows are no conversations: a line for each of the first, with its place; or
            there is none.
    """
    rows, problems = [], []
    for row in itertools.islice(data_rows(str(source)), max_rows):
        if row.problem:
            problems.append(f"{row.where}: {row.problem}")
            continue
        try:
            rows.append(Row(row.where, row.value, parse_row(row.value, where=row.where)))
        except ConfigError as error:
            problems += error.problems
    if len(problems) > MAX_SHOWN_PROBLEMS:
        num_more = len(problems) - MAX_SHOWN_PROBLEMS
        problems[MAX_SHOWN_PROBLEMS:] = [f"{source}: and {num_more} more rows like these"]
    if not problems and not rows:
        problems = [f"{source}: no conversations in the file"]
    if problems:
        raise ConfigError(problems)
    return rows


def parse_row(row: Any, *, where: str) -> Conversation:
    """Return the conversation of a row.

    Args:
        row: See the module.
        where: Source and place for the error.

    Raises:
        ConfigError: It is something else; one line.
    """
    if not isinstance(row, dict):
        hint = LIST_HINT if isinstance(row, list) else ""
        raise ConfigError([f"{where}: found {type(row).__name__}, wanted a JSON object{hint}"])
    # Parquet has every column in every row, empty where it is not used.
    key = "messages" if row.get("messages") is not None else "conversations"
    turns = row.get(key)
    if not isinstance(turns, list) or not turns:
        found = f"{key}: {shown(turns)}" if key in row else f"keys {shown(sorted(row))}"
        raise ConfigError(
            [f"{where}: found {found}, wanted a list of turns under 'messages' or 'conversations'"]
        )
    messages = tuple(parse_turn(turn, where=f"{where}: turn {i}") for i, turn in enumerate(turns))
    thinking = row.get("thinking")
    if not isinstance(thinking, bool | None):
        raise ConfigError([f"{where}: found thinking: {shown(thinking)}, wanted true or false"])
    return Conversation(
        messages=messages,
        ends_turn=row.get("finish_reason") != "length",
        thinking=thinking,
        tools=parse_tools(row.get("tools"), where=where),
    )


def parse_tools(tools: Any, *, where: str) -> tuple[dict[str, Any], ...]:
    """Return descriptions of tools; a table of strings, as data sets often are, has them as JSON.

    Raises:
        ConfigError: They are something else; one line.
    """
    found = from_json(tools) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConfigError([f"{where}: found tools: {shown(tools)}, wanted a list of objects"])
    return tuple(found)


def parse_turn(turn: Any, *, where: str) -> dict[str, Any]:
    """Return a turn as `role` and `content`, with its tool calls and what else it needs.

    Raises:
        ConfigError: It has neither spelling of both, or they are not text; one line.
    """
    if isinstance(turn, dict):
        calls = tool_calls_of(turn, where=where)
        role = role_of(turn, where=where)
        content = text_of(turn.get("content", turn.get("value")))
        if content is None and calls:
            content = ""  # so OpenAI writes a turn that only calls tools
        if isinstance(role, str) and isinstance(content, str):
            kept = {name: turn[name] for name in _KEPT_OF_A_TURN if turn.get(name) is not None}
            found = {"role": role, "content": content, **kept}
            if not is_unicode(json.dumps([found, calls], ensure_ascii=False)):
                raise ConfigError([f"{where}: found half of a surrogate pair, wanted Unicode text"])
            return {**found, "tool_calls": calls} if calls else found
    wanted = "'role' and 'content' as text, or 'from' and 'value'"
    raise ConfigError([f"{where}: found {shown(turn)}, wanted {wanted}"])


def role_of(turn: dict[str, Any], *, where: str) -> Any:
    """Return who speaks.

    Raises:
        ConfigError: It is a ShareGPT turn of an unknown speaker; one line.
    """
    speaker = turn.get("from")
    if "role" in turn or not isinstance(speaker, str):
        return turn.get("role")
    if speaker not in SHAREGPT_ROLES:
        known = ", ".join(SHAREGPT_ROLES)
        raise ConfigError([f"{where}: found from: {shown(speaker)}, wanted one of {known}"])
    return SHAREGPT_ROLES[speaker]


def tool_calls_of(turn: dict[str, Any], *, where: str) -> list[dict[str, Any]]:
    """Return the calls of a turn.

    OpenAI writes the arguments of a function as JSON inside a string; chat templates want to write
    the JSON themselves.

    Raises:
        ConfigError: They are no list of objects; one line.
    """
    calls = from_json(turn.get("tool_calls")) or []
    if not isinstance(calls, list) or not all(isinstance(one, dict) for one in calls):
        raise ConfigError([f"{where}: found tool_calls: {shown(calls)}, wanted a list of objects"])
    found = []
    for call in calls:
        function = call.get("function")
        if isinstance(function, dict):
            arguments = from_json(function.get("arguments"))
            call = {**call, "function": {**function, "arguments": arguments}}  # noqa: PLW2901
        found.append(call)
    return found


def from_json(value: Any) -> Any:
    """Return what a string holds, if that is JSON of an object or a list; else the value."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, dict | list) else value


def is_unicode(text: str) -> bool:
    """Return whether a tokenizer can read a text; JSON can spell halves of surrogate pairs."""
    return not any("\ud800" <= one <= "\udfff" for one in text)


def text_of(content: Any) -> Any:
    """Join OpenAI's list of text parts; return anything else as it is."""
    if isinstance(content, list) and content:
        parts = [one.get("text") for one in content if isinstance(one, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(content):
            return "".join(texts)
    return content


def shown(value: Any) -> str:
    """Return JSON that is short enough for a line."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
