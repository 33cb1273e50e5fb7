"""Bring the wheels of a lock into the wheelhouse, several at a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

import msgspec

from envdoctor import web
from envdoctor.alternates import Alternates, index_urls
from envdoctor.crew import Crew
from envdoctor.download import Patience
from envdoctor.errors import EnvdoctorError, IntegrityError, SourceError, SpaceError
from envdoctor.filesystem import GIGABYTE
from envdoctor.meter import Meter
from envdoctor.pylock import Lock, total_size
from envdoctor.urls import local_path, mask, origin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from envdoctor.crew import Outcome
    from envdoctor.plan import BuildPlan
    from envdoctor.pylock import Wheel
    from envdoctor.shell import Watch
    from envdoctor.workshop import Workshop

_POLL_SECONDS = 0.5
_UNPACK_BYTES = 8 * 10**6
"""Less than this waits for more: to start uv costs about as much as to unpack it."""
_QUICK_SECONDS = 20.0
_LONGEST_SECONDS = 60.0
_USUAL_SECONDS = 30.0
_QUICK_ROUNDS = 2
_PATIENT_ROUNDS = 5


class Unpack(Protocol):
    """Whoever can do something useful with wheels while others are still on their way."""

    def __call__(self, lock: Lock, shop: Workshop, /, *, watch: Watch) -> None:
        """Work on these, and let the watch know while it takes time."""


def fetch(lock: Lock, plan: BuildPlan, shop: Workshop, *, unpack: Unpack) -> Lock:
    """Fetch what a lock names and neither the wheelhouse nor a local folder has.

    Args:
        lock: What is wanted, and where it was found.
        plan: Further sources, asked for a file that its first one does not give.
        shop: Of the build.
        unpack: Given wheels that are there, while others are still on their way.

    Returns:
        The lock with the local address of each wheel, and who served it.

    Raises:
        IntegrityError: A source gives another file, and no source gives the right one.
        SourceError: No source gives a file.
        SpaceError: There is no room.
    """
    missing = shop.wheelhouse.missing(lock)
    if missing:
        lock = _Fetching(lock, plan, shop, missing=missing, unpack=unpack).run()
    return located(lock, shop)


def located(lock: Lock, shop: Workshop) -> Lock:
    """Return a lock with the local address of each wheel, and who served it."""
    house = shop.wheelhouse
    wheels, urls = [], {}
    for wheel in lock.wheels:
        if house.has(wheel):
            size = house.path(wheel).stat().st_size
            wheels.append(msgspec.structs.replace(wheel, source=house.source(wheel), size=size))
            urls[wheel.file] = house.path(wheel).as_uri()
        else:
            wheels.append(wheel)
            urls[wheel.file] = lock.urls[wheel.file]
    return Lock(wheels=tuple(wheels), urls=urls)


class _Fetching:
    """One fetching of what is missing; the main thread alone may start processes."""

    def __init__(
        self,
        lock: Lock,
        plan: BuildPlan,
        shop: Workshop,
        *,
        missing: Sequence[Wheel],
        unpack: Unpack,
    ) -> None:
        self._lock = lock
        self._alternates = Alternates(plan, shop)
        self._shop = shop
        self._unpack = unpack
        self._missing = sorted(missing, key=lambda one: -(one.size or 2**40))
        self._meter = Meter(total_size(missing), len(missing))
        way = web.make(shop.variables, index_urls(plan))
        self._crew = Crew(shop.wheelhouse, way, self._meter)
        self._asked: set[str] = set()

    def run(self) -> Lock:
        """Fetch all; return the lock with the addresses that served."""
        patience = self._patience(_QUICK_ROUNDS, at_most=_QUICK_SECONDS)
        left = {wheel.file for wheel in self._missing}
        ready: list[Wheel] = []
        try:
            # The largest first, so that none of them is the last to come.
            for wheel in self._missing:
                self._crew.new(wheel, [self._lock.urls[wheel.file]], patience)
            while left:
                outcome = self._crew.next(_POLL_SECONDS)
                if outcome and (outcome.is_there or self._is_elsewhere(outcome)):
                    left.remove(outcome.wheel.file)
                    ready.append(outcome.wheel)
                self.waiting()
                is_time = left and not self._crew.has_news
                if is_time and total_size(ready) > _UNPACK_BYTES:
                    self._unpack(located(self._only(ready), self._shop), self._shop, watch=self)
                    ready = []
        except (EnvdoctorError, KeyboardInterrupt):
            self._shop.stages.note(
                f"fetched {len(self._missing) - len(left)} of {len(self._missing)} wheels; "
                f"{self._meter.done / GIGABYTE:.2f} GB are kept: the same command goes on there"
            )
            raise
        finally:
            self._crew.end()
        self._shop.stages.note(self._told())
        return self._lock

    def line(self, text: str, /) -> None:
        """Pass over what uv says while it unpacks."""

    def waiting(self, pid: int = 0, /) -> None:
        """Show how far it is."""
        del pid
        self._shop.stages.tool(self._meter.text())

    def _is_elsewhere(self, outcome: Outcome) -> bool:
        """Tell whether a wheel that did not come lies in a local folder; else let it be tried on.

        Raises:
            EnvdoctorError: It was tried everywhere.
        """
        if isinstance(outcome.error, OSError):
            raise SpaceError(
                f"{outcome.error.filename or outcome.wheel.file}: {outcome.error.strerror}",
                reference="wheelhouse-not-writable",
                hint="set ENVDOCTOR_HOME to a folder of your own",
            ) from outcome.error
        if outcome.error:
            raise outcome.error
        wheel, first = outcome.wheel, self._lock.urls[outcome.wheel.file]
        if wheel.file in self._asked:
            raise exhausted(wheel, _reasons(outcome))
        self._asked.add(wheel.file)
        fault = outcome.download.faults[first]
        self._shop.stages.note(f"{wheel.file}: {origin(first)} {fault.reason}; asking others")
        others = self._alternates.of(wheel, known={first})
        local = next((url for url in others if local_path(url)), None)
        if local:
            self._lock = Lock(wheels=self._lock.wheels, urls={**self._lock.urls, wheel.file: local})
            return True
        patience = self._patience(_PATIENT_ROUNDS, at_most=_LONGEST_SECONDS)
        self._crew.again(outcome, [*others, first], patience)
        return False

    def _patience(self, rounds: int, *, at_most: float) -> Patience:
        configured = float(self._shop.variables.get("UV_HTTP_TIMEOUT") or _USUAL_SECONDS)
        return Patience(rounds=rounds, silence_seconds=max(1.0, min(configured, at_most)))

    def _only(self, wheels: Sequence[Wheel]) -> Lock:
        return Lock(wheels=tuple(wheels), urls=self._lock.urls)

    def _told(self) -> str:
        """Return how many wheels came, and who served how many."""
        house = self._shop.wheelhouse
        served = Counter(house.source(one) for one in self._missing if house.has(one))
        who = ", ".join(f"{name} ({number})" for name, number in served.most_common())
        return f"{self._meter.done / GIGABYTE:.2f} GB came from {who}"


def exhausted(wheel: Wheel, reasons: Mapping[str, tuple[str, bool]]) -> EnvdoctorError:
    """Return the error that says why nobody gives a wheel.

    Args:
        wheel: Which.
        reasons: By address: what was wrong, and whether it gave another file.
    """
    told = "; ".join(f"{mask(origin(url))} {reason}" for url, (reason, _) in reasons.items())
    message = f"{wheel.file}: {told}"
    if any(is_wrong for _, is_wrong in reasons.values()):
        return IntegrityError(
            message,
            reference="hash-mismatch",
            hint="it is kept as *.whl.bad in the wheelhouse; the source changed the file, or the "
            f"lock is old: envdoctor lock --upgrade {wheel.name}",
        )
    return SourceError(
        message,
        reference="source-unreachable",
        hint="run the same command again: what was fetched is kept",
    )


def _reasons(outcome: Outcome) -> dict[str, tuple[str, bool]]:
    return {url: (one.reason, one.is_wrong) for url, one in outcome.download.faults.items()}
