"""Read conversations from data rows; imports no torch.

A row is an object with `messages`, turns of `role` and `content`, as OpenAI writes them; or with
`conversations`, whose turns may be ShareGPT's `from` (system, human, gpt) and `value`.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from train.data_rows import data_rows
from train.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}
MAX_SHOWN_PROBLEMS = 20
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class Conversation:
    """One row of a data file.

    Args:
        messages: Turns, each with `role` and `content`.
        ends_turn: False when the last answer was cut off by a length limit, so that the target did
            not choose to end its turn there.
        thinking: Mode in which the answers were written, which the chat template must be told;
            None where nothing is known, or nothing to be told.
    """

    messages: tuple[dict[str, str], ...]
    ends_turn: bool = True
    thinking: bool | None = None


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
        raise ConfigError([f"{where}: found {type(row).__name__}, wanted a JSON object"])
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
        messages=messages, ends_turn=row.get("finish_reason") != "length", thinking=thinking
    )


def parse_turn(turn: Any, *, where: str) -> dict[str, str]:
    """Return a turn as `role` and `content`.

    Raises:
        ConfigError: It has neither spelling of both, or they are not text; one line.
    """
    if isinstance(turn, dict):
        sharegpt_role = turn.get("from")
        if isinstance(sharegpt_role, str):
            sharegpt_role = SHAREGPT_ROLES.get(sharegpt_role)
        role = turn.get("role", sharegpt_role)
        content = text_of(turn.get("content", turn.get("value")))
        if isinstance(role, str) and isinstance(content, str):
            if not (is_unicode(role) and is_unicode(content)):
                raise ConfigError([f"{where}: found half of a surrogate pair, wanted Unicode text"])
            return {"role": role, "content": content}
    wanted = "'role' and 'content' as text, or 'from' and 'value'"
    raise ConfigError([f"{where}: found {shown(turn)}, wanted {wanted}"])


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
