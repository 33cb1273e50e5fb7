"""Say how fast a target writes and how long it will take."""

from __future__ import annotations

import time

from train.progress import Progress


class Pace:
    """Progress of writing many texts.

    Args:
        num_texts: Texts to write.
        every_seconds: Seconds between lines where stderr is no terminal.
        noun: What the texts are, for the line.
    """

    def __init__(self, num_texts: int, *, every_seconds: float, noun: str) -> None:
        self._progress = Progress(every_seconds=every_seconds)
        self._num_texts = num_texts
        self._noun = noun
        self._num_finished = 0
        self._num_tokens = 0
        self._outcome = ""
        self._started = time.monotonic()

    def token(self, num_writing: int) -> None:
        """Count a token for each text that is being written, and show where things are."""
        self._num_tokens += num_writing
        seconds = time.monotonic() - self._started
        left = ""
        if self._num_finished:
            num_left = self._num_texts - self._num_finished
            left = f", about {num_left * seconds / self._num_finished:.0f} s left"
        self._progress.update(
            f"{self._num_finished}/{self._num_texts} {self._noun}{self._outcome},"
            f" {num_writing} being written, {self._num_tokens / seconds:.0f} tokens/s{left}"
        )

    def finished(self, num_texts: int, *, outcome: str = "") -> None:
        """Count texts that are done.

        Args:
            num_texts: How many.
            outcome: What became of all so far, shown behind their number.
        """
        self._num_finished += num_texts
        self._outcome = f" ({outcome})" if outcome else ""

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._progress.say(text)
