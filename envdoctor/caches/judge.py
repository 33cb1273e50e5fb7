"""Judge one entry of a compile cache: pure, from what was read and what is vouched for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from envdoctor.caches.fingerprint import differences
from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from envdoctor.caches.entries import Entry
    from envdoctor.caches.fingerprint import Fingerprint
    from envdoctor.caches.stamp import StampedFile
    from envdoctor.probes.cache_content import Saying
    from envdoctor.probes.cache_readings import Reading

EntryClass = Literal["valid", "stale", "foreign", "corrupt", "unknown"]
CLASSES: tuple[EntryClass, ...] = ("valid", "stale", "foreign", "corrupt", "unknown")

_HOUR_NS = 3600 * 10**9


@keyword_value
class Surroundings:
    """The environment whose processes would look entries up.

    Args:
        fingerprint: What compiled code depends on here.
        mark: What this torch writes into its pickles; empty if unknown.
        marks: Names of all builds of torch that are known by their mark.
        systems: Hashes of device, CUDA and Triton that this environment may have; empty if unknown.
        devices: Names of the GPUs here.
        archs: Their compute capabilities times ten; empty if unknown or there are none.
        uid: Who runs.
        now_ns: The time, since the epoch.
        alive: Processes that run, of those that left a temporary.
        held: Paths of lock files that a process holds, below the cache's root.
    """

    fingerprint: Fingerprint
    mark: str = ""
    marks: Mapping[str, str]
    systems: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    archs: frozenset[int] = frozenset()
    uid: int = 0
    now_ns: int = 0
    alive: frozenset[int] = frozenset()
    held: frozenset[str] = frozenset()


class Vouched(NamedTuple):
    """What one stamp says of an entry's files, by path, and where it was made."""

    fingerprint: Fingerprint
    files: Mapping[str, StampedFile]


class Judgement(NamedTuple):
    """An entry's class, and why."""

    entry: Entry
    kind: EntryClass
    reason: str


def judge(
    entry: Entry, reading: Reading, around: Surroundings, vouched: Sequence[Vouched]
) -> Judgement:
    """Class an entry; what is wrong comes before what is missing, and `valid` comes last.

    Args:
        entry: Its files as they are.
        reading: What they say.
        around: Whose cache it is.
        vouched: What each stamp of the cache says of files of this entry.
    """
    own = _own(around, vouched)
    kind, reason = _wrong(entry, reading, around, vouched) or ("valid", "")
    if kind != "valid":
        return Judgement(entry, kind, reason)
    if own and not reading.moved_from and _is_as_stamped(entry, reading, own):
        return Judgement(entry, "valid", "")
    return Judgement(entry, *_unvouched(entry, reading, around, vouched))


def _own(around: Surroundings, vouched: Sequence[Vouched]) -> Vouched | None:
    here = around.fingerprint
    for one in vouched:
        if one.fingerprint is here or one.fingerprint == here:
            return one
    return None


def _change_here(
    entry: Entry, reading: Reading, around: Surroundings, vouched: Sequence[Vouched]
) -> str:
    """Return how an entry is not as it was stamped here under another driver or variables.

    A place is named by all that decides its content, so those do not come to other bytes there.
    """
    near = (
        one
        for one in vouched
        if (found := differences(around.fingerprint, one.fingerprint))
        and not any(difference.is_of_another_machine for difference in found)
    )
    return next((change for one in near if (change := _change(entry, reading, one))), "")


def _wrong(
    entry: Entry, reading: Reading, around: Surroundings, vouched: Sequence[Vouched]
) -> tuple[EntryClass, str] | None:
    """Return what speaks against an entry, whoever vouches for it; None if nothing does."""
    own = _own(around, vouched)
    if entry.kind in ("temporary", "lock"):
        return _leftover(entry, around)
    if reading.fault:
        return "corrupt", f"{reading.fault_path}: {reading.fault}"
    if reading.unread:
        return "unknown", reading.unread
    if own and (change := _change(entry, reading, own)):
        return "corrupt", change
    if reading.digests and (change := _change_here(entry, reading, around, vouched)):
        return "corrupt", change
    reason = _foreign(entry, reading, around)
    return ("foreign", reason) if reason else None


def _unvouched(
    entry: Entry, reading: Reading, around: Surroundings, vouched: Sequence[Vouched]
) -> tuple[EntryClass, str]:
    if reading.moved_from:
        return "stale", f"its group names files in {reading.moved_from}: the cache was moved here"
    for one in vouched:
        found = differences(around.fingerprint, one.fingerprint)
        if found and _is_as_stamped(entry, reading, one):
            is_foreign = any(difference.is_of_another_machine for difference in found)
            return "foreign" if is_foreign else "stale", "; ".join(map(str, found))
    if any(one.fingerprint == around.fingerprint and one.files for one in vouched):
        return "unknown", "written again since it was stamped; --deep compares its content"
    return "unknown", "nobody has stamped it"


def _leftover(entry: Entry, around: Surroundings) -> tuple[EntryClass, str]:
    (first, *_) = entry.files
    if entry.kind == "lock":
        if entry.path in around.held:
            return "unknown", "a process holds this lock"
        return "corrupt", "a lock that was left: no process holds it"
    if entry.pid in around.alive:
        return "unknown", f"process {entry.pid} is writing it"
    if not entry.pid and around.now_ns - first.mtime_ns < _HOUR_NS:
        return "unknown", "written less than an hour ago, maybe not finished"
    who = f"process {entry.pid}" if entry.pid else "a process"
    return "corrupt", f"left by {who}, which is gone"


def _change(entry: Entry, reading: Reading, own: Vouched) -> str:
    """Return how an entry is not as it was stamped; empty if nothing is known against it."""
    if (
        not reading.digests
        and _is_as_stamped(entry, reading, own)
        and (len(entry.files) == len(own.files))
    ):
        return ""
    present = {file.path: file for file in entry.files}
    for path, stamped in own.files.items():
        file = present.get(path)
        if file is None:
            return f"{path}: it was stamped and is gone, the rest of its entry is there"
        digest = (reading.digests or {}).get(path, "")
        if file.size != stamped.size or (digest and digest != stamped.digest):
            # tuning results are written again as they grow
            return "" if entry.kind == "autotune" else f"{path}: not what was stamped"
    return ""


def _is_as_stamped(entry: Entry, reading: Reading, one: Vouched) -> bool:
    """Tell whether every file is what a stamp says: by hash if it was read, else by its stat."""
    digests = reading.digests
    for file in entry.files:
        stamped = one.files.get(file.path)
        if stamped is None:
            return False
        if digests and file.path in digests:
            if digests[file.path] != stamped.digest:
                return False
        elif file.mtime_ns != stamped.mtime_ns or file.size != stamped.size:
            return False
    return bool(entry.files)


def _foreign(entry: Entry, reading: Reading, around: Surroundings) -> str:
    """Return for whom an entry is, if not for this environment and user; empty otherwise."""
    for file in entry.files:
        if file.uid not in (around.uid, 0):
            return f"it belongs to uid {file.uid}, not to uid {around.uid}"
    return next((why for said in reading.sayings for why in _elsewhere(said, around)), "")


def _elsewhere(said: Saying, around: Surroundings) -> Iterator[str]:
    here = around.fingerprint
    if said.machine and said.machine != here.machine:
        yield f"code for {said.machine}, here is {here.machine}"
    if said.python and said.python != here.python:
        yield f"for Python {said.python}, here is {here.python}"
    if said.torch and around.mark and said.torch != around.mark:
        yield f"written by {around.marks.get(said.torch, 'another torch')}, here is {here.torch}"
    if said.triton and here.triton and _public(said.triton) != _public(here.triton):
        yield f"written by Triton {said.triton}, here is {here.triton}"
    if said.arch and around.archs and said.arch not in around.archs:
        here_archs = ", ".join(f"sm_{arch}" for arch in sorted(around.archs))
        yield f"for sm_{said.arch}, here is {here_archs}"
    if said.device and here.gpus and said.device not in around.devices:
        yield f"for {said.device}, here is {', '.join(sorted(around.devices))}"
    is_same_gpu = said.device in around.devices  # and so is CUDA, which comes with torch
    if said.system and around.systems and not is_same_gpu and said.system not in around.systems:
        made = f"for {said.device}" if said.device else "where no GPU was seen"
        yield f"{made}, with another GPU, CUDA or Triton than here"


def _public(version: str) -> str:
    return version.partition("+")[0]
