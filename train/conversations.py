"""Read conversations from JSONL; imports no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHAREGPT_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "system": "system"}


@dataclass(frozen=True)
class Conversation:
    """One line of a data file.

    Args:
        messages: Turns, each with `role` and `content`.
        ends_turn: False when the last answer was cut off by a length limit, so that the target did
            not choose to end its turn there.
    """

    messages: tuple[dict[str, str], ...]
    ends_turn: bool = True


def read_conversations(path: Path, *, max_rows: int | None = None) -> list[Conversation]:
    """Read a JSONL file, blank lines skipped.

    Args:
        path: One JSON object a line with `messages` or `conversations`.
        max_rows: Conversations to read at most; None reads all.

    Raises:
        ConfigError: A line is no conversation, or the file has none; names file and line.
    """
    conversations = list(_read(path, max_rows))
    if not conversations:
        raise ConfigError([f"{path}: no conversations in the file"])
    return conversations


def _read(path: Path, max_rows: int | None) -> Iterator[Conversation]:
    try:
        with path.open(encoding="utf-8") as lines:
            num_rows = 0
            for number, line in enumerate(lines, start=1):
                if num_rows == max_rows:
                    return
                if line.strip():
                    num_rows += 1
                    yield parse_line(line, where=f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot read the data file: {error}"]) from error


def parse_line(line: str, *, where: str) -> Conversation:
    """Parse one line.

    Args:
        line: A JSON object: `{"messages": [{"role": ..., "content": ...}, ...]}`; the list may be
            called `conversations`, and its turns may be ShareGPT's `from` and `value`.
        where: File and line for the error.

    Raises:
        ConfigError: It is something else.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{where}: not valid JSON: {error}"]) from error
    if not isinstance(row, dict):
        raise ConfigError([f"{where}: found {type(row).__name__}, wanted a JSON object"])
    turns = row.get("messages", row.get("conversations"))
    if not isinstance(turns, list) or not turns:
        raise ConfigError([f"{where}: wanted a list of turns under 'messages'"])
    messages = tuple(parse_turn(turn, where=f"{where}: turn {i}") for i, turn in enumerate(turns))
    return Conversation(messages=messages, ends_turn=row.get("finish_reason") != "length")


def parse_turn(turn: Any, *, where: str) -> dict[str, str]:
    """Return a turn as `role` and `content`.

    Raises:
        ConfigError: It has neither spelling of both, or they are not text.
    """
    if isinstance(turn, dict):
        sharegpt_role = turn.get("from")
        if isinstance(sharegpt_role, str):
            sharegpt_role = SHAREGPT_ROLES.get(sharegpt_role)
        role = turn.get("role", sharegpt_role)
        content = turn.get("content", turn.get("value"))
        if isinstance(role, str) and isinstance(content, str):
            return {"role": role, "content": content}
    raise ConfigError([f"{where}: wanted 'role' and 'content' as text"])
