"""Progress of long work, as events that a caller renders."""

from __future__ import annotations

import time
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from envdoctor.urls import mask
from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Iterator


class EventKind(StrEnum):
    """What an event tells."""

    STAGE = "stage"
    DONE = "done"
    NOTE = "note"
    TOOL = "tool"


@keyword_value
class Event:
    """One piece of talk.

    Args:
        kind: A stage begins, a stage is done, a remark, or a line that a tool wrote.
        text: What to show; credentials in URLs are masked already.
        stage: The stage it belongs to; empty outside of stages.
        seconds: How long the stage took; set for `done` only.
    """

    kind: EventKind
    text: str
    stage: str = ""
    seconds: float | None = None


class Talk(Protocol):
    """Whoever shows progress: the command line, or a test's list."""

    def __call__(self, event: Event, /) -> None:
        """Show one event."""


def silent(event: Event, /) -> None:
    """Show nothing."""
    del event


class Stages:
    """Announces stages and keeps how long each took.

    Args:
        talk: Where events go.
    """

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._current = ""
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        """Announce a stage, and its end unless it fails."""
        self._current = name
        self._say(EventKind.STAGE, text)
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - start, 3)
        self._say(EventKind.DONE, text, seconds=self.seconds[name])
        self._current = ""

    @property
    def current(self) -> str:
        """Name of the stage that runs, or in which it was that work ended; empty between stages."""
        return self._current

    def note(self, text: str) -> None:
        """Say something worth knowing."""
        self._say(EventKind.NOTE, text)

    def tool(self, line: str) -> None:
        """Pass on a line that a tool wrote."""
        self._say(EventKind.TOOL, line)

    def _say(self, kind: EventKind, text: str, seconds: float | None = None) -> None:
        self._talk(Event(kind=kind, text=mask(text), stage=self._current, seconds=seconds))
