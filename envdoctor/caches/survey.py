"""Read every cache of an environment and class its entries."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor import filesystem
from envdoctor.caches import stamp as stamps
from envdoctor.caches.access import WeakSpot, weak_members, weak_steps
from envdoctor.caches.entries import Entry, group, name_of
from envdoctor.caches.judge import Judgement, Surroundings, Vouched, judge
from envdoctor.probes.cache_access import steps_of_links, steps_to
from envdoctor.probes.cache_files import (
    Listing,
    held_locks,
    inode_of,
    is_running,
    list_files,
)
from envdoctor.probes.cache_readings import Allowance, Reading, read_entry
from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from envdoctor.caches.stamp import Stamp, StampedFile
    from envdoctor.facts import PathStep
    from envdoctor.probes.cache_places import CachePlace

    _Files = Mapping[str, Mapping[str, StampedFile]]

_PICKLE_BYTES = 64 * 1024**2
"""Bytes of unstamped pickles that are searched without `deep`; what is beyond stays unknown."""


_UNREAD = Reading()
_NO_FOLDER = "it is no folder"


@keyword_value
class Survey:
    """What one cache holds.

    Args:
        place: Where it is and why there.
        root: Its folder, links resolved.
        exists: True if it is there.
        steps: Folders and links on the way to it.
        filesystem: Type of its file system; empty if it cannot be told.
        free_bytes: That may still be written there.
        judgements: Its entries with their classes, locks in use left out.
        missing: Entries that were stamped for this environment and are gone.
        locks: Lock files, and how many of them a process holds.
        weak_spots: Ways in which somebody else can put code into it.
        stamps: All that vouch for something in it.
        readings: What was read of each entry, by its path.
        unread: What could not be looked at.
    """

    place: CachePlace
    root: str
    exists: bool
    steps: tuple[PathStep, ...] = ()
    filesystem: str = ""
    free_bytes: int = 0
    judgements: tuple[Judgement, ...] = ()
    missing: tuple[str, ...] = ()
    locks: tuple[int, int] = (0, 0)
    weak_spots: tuple[WeakSpot, ...] = ()
    stamps: tuple[Stamp, ...] = ()
    readings: Mapping[str, Reading]
    unread: tuple[str, ...] = ()


@keyword_value
class Manner:
    """How thoroughly to read.

    Args:
        deep: True to read and hash every byte.
        every: True to open entries as well that have size and time of a stamp.
        progress: Told bytes read and bytes in all, when deep.
    """

    deep: bool = False
    every: bool = False
    progress: Callable[[int, int], None] | None = None


def survey_all(
    places: Sequence[CachePlace], around: Surroundings, *, home: Path, manner: Manner
) -> list[Survey]:
    """Read and class every cache.

    Args:
        places: As `cache_places` gives them.
        around: The environment that they are held against.
        home: envdoctor's own folder, where stamps lie.
        manner: How thoroughly.
    """
    roots = {os.path.realpath(place.path) for place in places}
    listings = {
        root: list_files(root, apart_from=roots - {root})
        for root in roots
        if os.path.isdir(root)  # noqa: PTH112
    }
    total = sum(file.size for listing in listings.values() for file in listing.files)
    meter = _Meter(total, manner.progress if manner.deep else None)
    found = []
    for place in places:
        root = os.path.realpath(place.path)
        reader = _Reader(place, root, around, home=home, manner=manner)
        found.append(reader.survey(listings.get(root), meter))
    meter.add(total)
    return found


class _Meter:
    """Adds up bytes and tells of them."""

    def __init__(self, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._total, self._progress, self._done = total, progress, 0

    def add(self, count: int) -> None:
        self._done = min(self._done + count, self._total)
        if self._progress:
            self._progress(self._done, self._total)


class _Reader:
    """Reads one cache.

    Args:
        place: Where it is.
        root: The same with links resolved.
        around: The environment.
        home: Where stamps lie.
        manner: How thoroughly.
    """

    def __init__(
        self, place: CachePlace, root: str, around: Surroundings, *, home: Path, manner: Manner
    ) -> None:
        self._place = place
        self._root = root
        self._deep = manner.deep
        self._every = manner.deep or manner.every
        self._around = around
        self._stamps = stamps.load_all(home, root)
        self._allowance = Allowance(_PICKLE_BYTES)

    def survey(self, listing: Listing | None, meter: _Meter) -> Survey:
        """Return what the cache holds; None stands for a cache that is not there."""
        outside = self._outside(listing)
        entries = group(self._place.kind, listing.files) if listing else []
        vouched = [(one, self._by_entry(one, entries)) for one in self._stamps]
        if listing is None:
            return replace(outside, missing=self._missing(vouched, set()))
        locks, entries = self._locks(entries)
        said_of: dict[str, list[Vouched]] = {}
        for one, by_entry in vouched:
            for path, files in by_entry.items():
                said_of.setdefault(path, []).append(Vouched(one.fingerprint, files))
        readings: dict[str, Reading] = {}
        judgements = []
        for entry in entries:
            said = said_of.get(entry.path, ())
            readings[entry.path] = reading = self._read(entry, said)
            judgements.append(judge(entry, reading, self._around, said))
            if self._deep:
                meter.add(entry.size)
        missing = self._missing(vouched, {entry.path for entry in entries})
        links = list(steps_of_links(self._root, listing.files))
        weak = [*outside.weak_spots, *weak_members(self._root, listing.folders, listing.files)]
        weak += weak_steps((step for link in links for step in link), uid=self._around.uid)
        return replace(
            outside,
            judgements=tuple(self._renamed(judgements, readings)),
            missing=missing,
            locks=locks,
            weak_spots=tuple(dict.fromkeys(weak)),
            readings=readings,
            unread=(*listing.unread, *(_behind(link) for link in links)),
        )

    def _outside(self, listing: Listing | None) -> Survey:
        """Return what can be told of the cache without its entries."""
        steps = tuple(steps_to(self._place.path))
        return Survey(
            place=self._place,
            root=self._root,
            exists=listing is not None,
            steps=steps,
            filesystem=filesystem.kind(Path(self._root)),
            free_bytes=_free(self._root),
            weak_spots=tuple(weak_steps(steps, uid=self._around.uid)),
            stamps=tuple(self._stamps),
            readings={},
            unread=() if listing or not os.path.lexists(self._root) else (_NO_FOLDER,),
        )

    def _by_entry(self, stamp: Stamp, entries: Sequence[Entry]) -> _Files:
        """Return what a stamp says, by entry and path."""
        known = {file.path: entry.path for entry in entries for file in entry.files}
        found: dict[str, dict[str, StampedFile]] = {}
        for file in stamp.files:
            name = known.get(file.path) or name_of(self._place.kind, file.path)[0]
            found.setdefault(name, {})[file.path] = file
        return found

    def _locks(self, entries: list[Entry]) -> tuple[tuple[int, int], list[Entry]]:
        """Count locks; leave out those in use, and the empty ones that torch never removes."""
        locks = [entry for entry in entries if entry.kind == "lock"]
        inodes = held_locks() if locks else {}
        held = {entry.path for entry in locks if inode_of(f"{self._root}/{entry.path}") in inodes}
        pids = {entry.pid for entry in entries if entry.pid}
        alive = frozenset(pid for pid in pids if is_running(pid))
        self._around = replace(self._around, held=frozenset(held), alive=alive)
        usual = {
            entry.path for entry in locks if entry.path.startswith("locks/") and not entry.size
        }
        kept = [entry for entry in entries if entry.path not in usual | held]
        return (len(locks), len(held)), kept

    def _read(self, entry: Entry, said: Sequence[Vouched]) -> Reading:
        if entry.kind in ("temporary", "lock"):
            return _UNREAD
        if said and not self._every and any(_has_stat(entry, one) for one in said):
            return _UNREAD
        return read_entry(self._root, entry, deep=self._deep, allowance=self._allowance)

    def _missing(
        self,
        vouched: Sequence[tuple[Stamp, _Files]],
        present: set[str],
    ) -> tuple[str, ...]:
        return tuple(
            path
            for stamp, files in vouched
            if stamp.fingerprint == self._around.fingerprint
            for path in files
            if path not in present
        )

    def _renamed(
        self,
        judgements: Sequence[Judgement],
        readings: Mapping[str, Reading],
    ) -> list[Judgement]:
        """Find entries that lie under another name than the one they were stamped under."""
        if not (self._stamps and self._deep):
            return list(judgements)
        present = {file.path for one in judgements for file in one.entry.files}
        lost = {
            file.digest: file.path
            for stamp in self._stamps
            for file in stamp.files
            if file.path not in present
        }
        found = []
        for one in judgements:
            digests = readings[one.entry.path].digests or {}
            hits = (lost[digest] for digest in digests.values() if digest in lost)
            if one.kind == "unknown" and (before := next(hits, "")):
                found.append(Judgement(one.entry, "corrupt", f"it was renamed: it is {before}"))
            else:
                found.append(one)
        return found


def _has_stat(entry: Entry, one: Vouched) -> bool:
    """Tell whether an entry's files have size and time of a stamp, so that none need be opened."""
    if len(entry.files) != len(one.files):
        return False
    for file in entry.files:
        stamped = one.files.get(file.path)
        if stamped is None or stamped.mtime_ns != file.mtime_ns or stamped.size != file.size:
            return False
    return True


def _behind(link: Sequence[PathStep]) -> str:
    """Return what is said of a link in a cache that leads to a folder."""
    last = link[-1]
    return f"what lies in {last.path}, where a link in the cache leads"


def _free(root: str) -> int:
    with suppress(OSError):
        return filesystem.free_bytes(Path(root))
    return 0
