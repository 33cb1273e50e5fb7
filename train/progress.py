"""Tell a person at stderr how far the run is."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO


@dataclass(frozen=True)
class StepView:
    """What a person may see of a report of the training.

    Attributes:
        record: The line of the metrics file.
        num_steps: Optimizer steps of the whole run.
        seconds_left: Until the last of them, at the pace so far.
    """

    record: Mapping[str, Any]
    num_steps: int
    seconds_left: float

    @property
    def is_last(self) -> bool:
        """Whether the training ends with this step."""
        return bool(self.record["step"] == self.num_steps)

    def line(self) -> str:
        """Return the most of it on one line."""
        record = self.record
        used = f"  {record['mfu']:.1%} of peak" if "mfu" in record else ""
        return (
            f"step {record['step']}/{self.num_steps}  loss {record['loss']:.3f}"
            f"  right at slot 1 {record['accuracy'][0]:.1%}"
            f"  {record['tokens_per_second']:.0f} tokens/s{used}"
            f"  {duration(self.seconds_left)} left"
        )


def duration(seconds: float) -> str:
    """Return a time as a person says it: `48 s`, `12 min`, `3 h 5 min`."""
    if seconds < 120:  # noqa: PLR2004  two minutes
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def to_stderr(line: str) -> None:
    """Write a line where nothing is rewritten."""
    sys.stderr.write(f"{line}\n")


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
        self.clear()
        self._stream.write(text + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Take away the line that is rewritten, for something else to be written there."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
        self._next_time = 0.0

    def step(self, view: StepView) -> None:
        """Show how far the training is; the last step always."""
        if view.is_last:
            self._next_time = 0.0
        self.update(view.line())

    def close(self) -> None:
        """Leave the stream with the lines that stay."""


def open_progress(*, every_seconds: float) -> Progress:
    """Return the fullest view that stderr can show.

    Args:
        every_seconds: Seconds between lines where stderr is no terminal.
    """
    is_plain = not sys.stderr.isatty() or os.environ.get("TERM") == "dumb"
    if is_plain or importlib.util.find_spec("rich") is None:
        return Progress(every_seconds=every_seconds)
    # Here, because an environment that trains need not hold rich.
    from train.live import LiveProgress  # noqa: PLC0415

    return LiveProgress(stream=sys.stderr)
