"""Prompts to decode, from a file of conversations; imports no torch."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.conversations import Conversation, parse_line
from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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
    try:
        with path.open(encoding="utf-8") as lines:
            found = list(itertools.islice(_read(lines, path), limit))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError([f"{path}: cannot read the prompts: {reason}"]) from error
    if not found:
        raise ConfigError([f"{path}: no prompts in the file"])
    return found


def question_of(text: str) -> Question:
    """Return a prompt given as text."""
    return Question("prompt", Conversation(({"role": "user", "content": text},)))


def _read(lines: Iterable[str], path: Path) -> Iterator[Question]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{path}:{number}"
            conversation = parse_line(line, where=where)
            if "user" not in [turn["role"] for turn in conversation.messages]:
                raise ConfigError([f"{where}: no user turn to answer"])
            yield Question(str(json.loads(line).get("id", number)), conversation)
