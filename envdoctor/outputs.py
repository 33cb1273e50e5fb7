"""What a program writes to one stream: its end, and its lines as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KEPT_BYTES = 16 * 1024**2
"""A program that writes without end must not take all memory; the end of it tells most."""


class Output:
    """Keeps the end of a stream, at least `KEPT_BYTES` of it, and hands on its lines.

    Args:
        sinks: Take each line once it is complete.
    """

    def __init__(self, sinks: Sequence[Callable[[str], None]] = ()) -> None:
        self._kept = bytearray()
        self._num_told = 0
        self._sinks = sinks

    @property
    def text(self) -> str:
        """The end of what has come."""
        return self._kept.decode(errors="replace")

    def take(self, chunk: bytes) -> None:
        """Keep what has come, and hand on the lines that it completes; nothing is the end."""
        num_before = len(self._kept)
        self._kept += chunk
        end = chunk.rfind(b"\n") + 1
        if self._sinks and (end or not chunk):
            self._tell(num_before + end)
        surplus = len(self._kept) - KEPT_BYTES
        if surplus > KEPT_BYTES:
            del self._kept[:surplus]
            self._num_told = max(0, self._num_told - surplus)

    def _tell(self, end: int) -> None:
        lines = self._kept[self._num_told : end].decode(errors="replace").splitlines()
        self._num_told = end
        for line in lines:
            for sink in self._sinks:
                sink(line)
