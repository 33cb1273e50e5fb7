"""Threads that fetch wheels."""

from __future__ import annotations

import itertools
import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envdoctor.download import Download, Stopped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envdoctor.download import Patience
    from envdoctor.meter import Meter
    from envdoctor.pylock import Wheel
    from envdoctor.web import Web
    from envdoctor.wheelhouse import Wheelhouse

_THREADS = 6
_GRACE_SECONDS = 1.0
_FIRST, _NEXT = 0, 1


@dataclass(order=True, slots=True)
class _Job:
    """What a thread is to do; without a download: to end."""

    rank: int
    number: int
    download: Download | None = field(compare=False)
    urls: Sequence[str] = field(compare=False)
    patience: Patience | None = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one wheel.

    Args:
        download: Knows which wheel, and what was wrong with its addresses.
        is_there: True if the wheelhouse has it now.
        error: What ended the work on it, other than its sources.
    """

    download: Download
    is_there: bool = False
    error: BaseException | None = None

    @property
    def wheel(self) -> Wheel:
        """The wheel."""
        return self.download.wheel


class Crew:
    """Fetches wheels in threads of its own.

    They are left behind, not waited for, when this process ends: a connection may be silent for
    long, and what they have read is on disk.

    Args:
        house: Where to.
        web: Opens addresses.
        meter: Counts bytes.
    """

    def __init__(self, house: Wheelhouse, web: Web, meter: Meter) -> None:
        self._house = house
        self._web = web
        self._meter = meter
        self._stop = threading.Event()
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def new(self, wheel: Wheel, urls: Sequence[str], patience: Patience) -> None:
        """Let a wheel be fetched, after those that were asked for before."""
        download = Download(
            wheel, house=self._house, web=self._web, stop=self._stop, meter=self._meter
        )
        self._jobs.put(_Job(_NEXT, next(self._numbers), download, urls, patience))

    def again(self, outcome: Outcome, urls: Sequence[str], patience: Patience) -> None:
        """Let a wheel that did not come be tried once more, before all others."""
        self._jobs.put(_Job(_FIRST, next(self._numbers), outcome.download, urls, patience))

    @property
    def has_news(self) -> bool:
        """True if something came of a wheel already."""
        return not self._outcomes.empty()

    def next(self, seconds: float) -> Outcome | None:
        """Wait for what comes of a wheel; None if nothing does in this time."""
        try:
            return self._outcomes.get(timeout=seconds)
        except queue.Empty:
            return None

    def end(self) -> None:
        """Let the threads stop, and give those that can a moment to do so."""
        self._stop.set()
        for _ in self._threads:
            self._jobs.put(_Job(_FIRST, next(self._numbers), None, (), None))
        for thread in self._threads:
            thread.join(_GRACE_SECONDS / _THREADS)

    def _work(self) -> None:
        while not self._stop.is_set():
            job = self._jobs.get()
            if job.download is None or job.patience is None:
                return
            try:
                is_there = job.download.run(job.urls, job.patience)
                if is_there:
                    self._meter.finished()
                outcome = Outcome(download=job.download, is_there=is_there)
            except Stopped:
                return
            except Exception as error:  # noqa: BLE001  raised again in the main thread
                outcome = Outcome(download=job.download, error=error)
            self._outcomes.put(outcome)
