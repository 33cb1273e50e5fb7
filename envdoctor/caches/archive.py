"""The form of an exported cache: one compressed tar file whose first member describes the rest.

Members are called `files/0`, `files/1`, ...: where a file goes is said by the manifest alone.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from envdoctor.caches.entries import COUNTED, CachedFile, RootKind, group
from envdoctor.caches.fingerprint import Fingerprint
from envdoctor.errors import IntegrityError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 256 * 1024**2
MOVABLE: tuple[RootKind, ...] = ("inductor", "triton", "flashinfer")
"""Caches that another machine can use. The driver's own is bound to its index; precompiled headers
are of no use to a cache that is full, and bound to paths and to the compiler."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_PATH = 1024


class ArchivedFile(msgspec.Struct, frozen=True, array_like=True):
    """One file.

    Args:
        kind: Whose cache it belongs to.
        path: Below that cache's root.
        size: Bytes.
        digest: sha256 in hex.
        is_stamped: True if it was vouched for where it was exported.
    """

    kind: RootKind
    path: str
    size: int
    digest: str
    is_stamped: bool


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive holds.

    Args:
        fingerprint: Of the environment that it was exported from.
        roots: Folder of each cache there, which Triton writes into its groups.
        runs: What was warmed for, as in a stamp.
        files: In the order of the members.
    """

    schema: int = SCHEMA_VERSION
    made: str
    fingerprint: Fingerprint
    roots: dict[str, str]
    runs: dict[str, str]
    files: tuple[ArchivedFile, ...]


def member_name(index: int) -> str:
    """Return what a file's member is called."""
    return f"files/{index}"


def read_manifest(content: bytes, *, source: Path) -> Manifest:
    """Return an archive's manifest.

    Args:
        content: The first member.
        source: The archive, for messages.

    Raises:
        IntegrityError: It is none, of another version, or names what no cache holds.
    """
    try:
        found = msgspec.json.decode(content, type=Manifest)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise invalid(source, f"its manifest cannot be read: {error}") from None
    if found.schema != SCHEMA_VERSION:
        raise invalid(source, f"its form is {found.schema}, this envdoctor reads {SCHEMA_VERSION}")
    if not found.files:
        raise invalid(source, "it holds no file")
    seen: set[tuple[str, str]] = set()
    for file in found.files:
        if reason := _refusal(file):
            raise invalid(source, f"{file.path!r}: {reason}")
        if (file.kind, file.path) in seen:
            raise invalid(source, f"{file.path!r} is in it twice")
        seen.add((file.kind, file.path))
    return found


def invalid(source: Path, reason: str) -> IntegrityError:
    """Return the error for an archive that is not what `export` writes."""
    return IntegrityError(f"{source}: no exported cache: {reason}", reference="archive-invalid")


def _refusal(file: ArchivedFile) -> str:
    """Return why a file is not taken into any cache; empty if it may be."""
    path = file.path
    parts = path.split("/")
    if file.kind not in MOVABLE:
        return f"a cache of {file.kind} is not moved"
    if not path.isprintable() or len(path) > _MAX_PATH:
        return "no path of a cache"
    if {"", ".", ".."} & set(parts) or PurePosixPath(path).is_absolute():
        return "it leads out of the cache"
    if file.size < 0 or not _DIGEST.fullmatch(file.digest):
        return "its size or hash is not valid"
    (entry,) = group(file.kind, [CachedFile(path, file.size, 0, 0, 0)])
    return "" if entry.kind in COUNTED else f"a {entry.kind} is not moved"
