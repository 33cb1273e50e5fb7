"""Tell a person at stderr how far the run is."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO


class Progress:
    """One line that is rewritten on a terminal, a line every few seconds elsewhere.

    Args:
        every_seconds: Seconds between lines where the stream is no terminal.
        stream: Where to write; stderr when unset.
    """

    def __init__(self, *, every_seconds: float, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._pause_seconds = 0.1 if self._is_terminal else every_seconds
        self._next_time = 0.0
        self._width = 0

    def update(self, text: str) -> None:
        """Show the text, if the last one was not just shown."""
        now = time.monotonic()
        if now < self._next_time:
            return
        self._next_time = now + self._pause_seconds
        if self._is_terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def say(self, text: str) -> None:
        """Write a line that stays, and show the next update at once."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0
        self._stream.write(text + "\n")
        self._stream.flush()
        self._next_time = 0.0
