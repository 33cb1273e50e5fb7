"""How far a download is: bytes, rate, time left."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MB = 10**6


class Meter:
    """Counts what several threads bring.

    Args:
        total: Bytes of all that is to come, as far as sizes are known.
        num_wheels: How many.
        clock: Seconds from any fixed point.
    """

    def __init__(
        self, total: int, num_wheels: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total = total
        self._num_wheels = num_wheels
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock()
        self._fresh = 0
        self.done = 0
        self._num_done = 0

    def kept(self, num_bytes: int) -> None:
        """Take note of bytes that were there already; negative for those that are given up."""
        with self._lock:
            self.done += num_bytes

    def came(self, num_bytes: int) -> None:
        """Take note of bytes that a source gave."""
        with self._lock:
            self.done += num_bytes
            self._fresh += num_bytes

    def finished(self) -> None:
        """Take note that a wheel is whole."""
        with self._lock:
            self._num_done += 1

    def text(self) -> str:
        """Return how far it is: wheels, bytes, rate, time left."""
        parts = [f"{self._num_done} of {self._num_wheels} wheels"]
        if self._total:
            parts.append(f"{self.done / _MB:.0f} of {self._total / _MB:.0f} MB")
        rate = self._fresh / max(self._clock() - self._since, 0.1)
        if rate > 0:
            left = max(self._total - self.done, 0) / rate
            parts += [f"{rate / _MB:.1f} MB/s", f"{left:.0f} s left"]
        return ", ".join(parts)
