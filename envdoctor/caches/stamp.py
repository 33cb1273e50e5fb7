"""Stamps: what a cache held when it was warmed or verified, and where that was.

They lie in envdoctor's home, not in the cache: who can write into a cache cannot vouch for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from envdoctor.caches.entries import RootKind
from envdoctor.caches.fingerprint import Fingerprint
from envdoctor.caches.stamp_places import place
from envdoctor.durable import replace_bytes
from envdoctor.errors import SpaceError
from envdoctor.formats.printable import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCHEMA_VERSION = 1


class StampedFile(msgspec.Struct, frozen=True, array_like=True):
    """One file as it was.

    Args:
        path: Below the cache's root.
        size: Bytes.
        mtime_ns: When it was last written.
        digest: sha256 in hex.
    """

    path: str
    size: int
    mtime_ns: int
    digest: str


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What is vouched for in one cache for one fingerprint.

    Args:
        root: The cache's folder, links resolved.
        kind: Whose cache it is.
        fingerprint: Of the environment that looks the entries up.
        made: When it was last added to, UTC.
        by: What vouched last: `warm`, `verify` or `import`.
        runs: Digest of what decides what a run compiles, by the run's name.
        files: Sorted by path.
    """

    schema: int = SCHEMA_VERSION
    root: str
    kind: RootKind
    fingerprint: Fingerprint
    made: str
    by: str
    runs: dict[str, str] = {}
    files: tuple[StampedFile, ...]


def load_all(home: Path, root: str) -> list[Stamp]:
    """Return the stamps of a cache; one that cannot be read counts as none."""
    found = []
    for path in sorted(place(home, root).glob("*.json")):
        try:
            stamp = msgspec.json.decode(path.read_bytes(), type=Stamp)
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
            continue
        if stamp.schema == SCHEMA_VERSION and stamp.root == root:
            found.append(stamp)
    return found


def save(home: Path, stamp: Stamp) -> None:
    """Write a stamp in one step, in place of the one of the same cache and fingerprint.

    Raises:
        SpaceError: It cannot be written.
    """
    try:
        content = msgspec.json.encode(stamp)
    except UnicodeEncodeError:
        raise _unwritable(home, f"{encodable(stamp.root)} is no UTF-8 text") from None
    folder = place(home, stamp.root)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_bytes(folder / f"{stamp.fingerprint.id}.json", content)
    except OSError as error:
        raise _unwritable(home, str(error.strerror)) from error


def _unwritable(home: Path, reason: str) -> SpaceError:
    return SpaceError(
        f"stamps cannot be written below {home}: {reason}",
        reference="home-not-writable",
        hint="set ENVDOCTOR_HOME to a folder of your own",
    )


def matching(stamps: Iterable[Stamp], fingerprint: Fingerprint) -> Stamp | None:
    """Return the stamp of exactly this fingerprint, or None."""
    return next((stamp for stamp in stamps if stamp.fingerprint == fingerprint), None)


def without_runs(stamp: Stamp) -> Stamp:
    """Return a stamp that no longer says what was warmed for."""
    return msgspec.structs.replace(stamp, runs={})


def without(stamp: Stamp, paths: Iterable[str]) -> Stamp:
    """Return a stamp that no longer vouches for some files."""
    gone = set(paths)
    left = tuple(file for file in stamp.files if file.path not in gone)
    return msgspec.structs.replace(stamp, files=left)
