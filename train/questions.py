"""Prompts to decode, from a file of conversations; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.conversations import Conversation, read_rows
from train.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Question:
    """One prompt.

    Attributes:
        id: The row's own, else its line.
        conversation: Its turns; what follows the first user turn is not used.
    """

    id: str
    conversation: Conversation


def read_questions(path: Path, *, limit: int | None = None) -> list[Question]:
    """Read the prompts of a JSONL file.

    Args:
        path: A JSON object a line with `messages`, and an `id` if it likes.
        limit: Rows to read at most.

    Raises:
        ConfigError: A line is no conversation or has no user turn, or the file has none; names
            file and line.
    """
    rows = read_rows(path, max_rows=limit)
    problems = [
        f"{path}: row {number}: no user turn to answer"
        for number, row in enumerate(rows, start=1)
        if "user" not in [turn["role"] for turn in row.conversation.messages]
    ]
    if problems:
        raise ConfigError(problems)
    return [
        Question(str(row.raw.get("id", number)), row.conversation)
        for number, row in enumerate(rows, start=1)
    ]


def question_of(text: str) -> Question:
    """Return a prompt given as text."""
    return Question("prompt", Conversation(({"role": "user", "content": text},)))
