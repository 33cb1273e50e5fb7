"""Show the progress of long work: one line a stage, the current one live on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, TextIO

from envdoctor.formats.printable import one_line
from envdoctor.talk import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Callable

_CLEAR = "\r\x1b[K"
_GB = 1000**3
_QUIET_SECONDS = 30.0
"""Without a terminal, a long stage is silent for no longer."""


class Progress:
    """A `Talk` that writes to a stream, by default stderr.

    On a terminal the line of the running stage is rewritten with the time and the tool's last
    words; elsewhere a stage is a line when it begins, one when it is done, and one each half minute
    of a long one.

    Args:
        stream: Where to write.
        clock: Seconds from any fixed point.
    """

    def __init__(
        self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._is_live = self._stream.isatty()
        self._clock = clock
        self._stage = ""
        self._since = clock()
        self._shown = clock()

    def __call__(self, event: Event, /) -> None:
        """Show one event; what could drive the terminal is escaped: it may quote a file's name."""
        text = one_line(event.text.strip() if event.kind is EventKind.TOOL else event.text)
        match event.kind:
            case EventKind.STAGE:
                self._stage, self._since = f"{event.stage}: {text}", self._clock()
                self._passing(f"... {self._stage}", keep=True)
            case EventKind.DONE:
                self._lasting(f"ok  {event.stage}: {text} ({event.seconds or 0.0:.1f} s)")
            case EventKind.NOTE:
                self._lasting(f"    {text}")
            case EventKind.TOOL:
                elapsed = self._clock() - self._since
                is_due = self._clock() - self._shown >= _QUIET_SECONDS
                line = f"... {self._stage} ({elapsed:.0f} s)  {text}"
                self._passing(line, keep=is_due)

    def _lasting(self, text: str) -> None:
        self._stream.write(f"{_CLEAR if self._is_live else ''}{text}\n")
        self._shown = self._clock()
        self._stream.flush()

    def _passing(self, text: str, *, keep: bool = False) -> None:
        """Show a line that the next one replaces; off a terminal only if it is worth keeping."""
        if self._is_live:
            width = shutil.get_terminal_size().columns
            self._stream.write(f"{_CLEAR}{text[: width - 1]}")
        elif keep:
            self._stream.write(f"{text}\n")
            self._shown = self._clock()
        self._stream.flush()


def byte_meter(what: str, stream: TextIO | None = None) -> Callable[[int, int], None] | None:
    """Return what shows how many bytes of how many are done; None off a terminal.

    Args:
        what: What is done to them, such as `hashed`.
        stream: Where to write, by default stderr.
    """
    target = stream or sys.stderr
    if not target.isatty():
        return None

    def show(done: int, total: int) -> None:
        text = f"... {what} {done / _GB:.1f} of {total / _GB:.1f} GB" if done < total else ""
        target.write(f"{_CLEAR}{text}")
        target.flush()

    return show
