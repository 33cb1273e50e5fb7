"""Prompts to decode, from a source of conversations; imports no torch."""

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
        id: The row's own, else its number from 1.
        conversation: Its turns; what follows the first user turn is not used.
    """

    id: str
    conversation: Conversation


def read_questions(source: Path | str, *, limit: int | None = None) -> list[Question]:
    """Read prompts.

    Args:
        source: As `data.held_out` in a run file; rows may have an `id`, and answers are not used.
        limit: Rows to read at most.

    Raises:
        ConfigError: A row is no conversation or has no user turn, or there is none.
    """
    found = [
        Question(str(row.raw.get("id", number)), row.conversation)
        for number, row in enumerate(read_rows(source, max_rows=limit), start=1)
    ]
    silent = [
        one.id
        for one in found
        if "user" not in [turn["role"] for turn in one.conversation.messages]
    ]
    if silent:
        raise ConfigError([f"{source}: row {silent[0]}: no user turn to answer"])
    return found


def question_of(text: str) -> Question:
    """Return a prompt given as text."""
    return Question("prompt", Conversation(({"role": "user", "content": text},)))
