"""What a file system can hold and do."""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.errors import SpaceError

if TYPE_CHECKING:
    from collections.abc import Iterator

NETWORK = re.compile(r"nfs\d?|lustre|cifs|smb3?|ceph|beegfs|gpfs|glusterfs|9p|fuse\..+")
MOUNTS = Path("/proc/self/mountinfo")
GIGABYTE = 10**9
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MORE_ROOM = "free some, or set ENVDOCTOR_HOME to a folder on another file system"


def existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    while not path.exists():
        path = path.parent
    return path


def free_bytes(path: Path) -> int:
    """Return the bytes that an ordinary user may still write where a path is or will be."""
    status = os.statvfs(existing(path))
    return status.f_bavail * status.f_frsize


def kind(path: Path, *, mounts: Path = MOUNTS) -> str:
    """Return the type of the file system of a path, such as `ext4`; empty if it cannot be told."""
    real = str(existing(path).resolve())
    best, found = "", ""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        # Source: proc(5): the fifth field is the mount point, the type follows " - ".
        left, _, right = line.partition(" - ")
        fields = left.split()
        point = fields[4].encode().decode("unicode_escape") if len(fields) > 4 else ""  # noqa: PLR2004
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if point and inside and len(point) >= len(best):
            best, found = point, (right.split() or [""])[0]
    return found


def is_network(path: Path, *, mounts: Path = MOUNTS) -> bool:
    """Tell whether a path lies on a file system that other machines may share."""
    return bool(NETWORK.fullmatch(kind(path, mounts=mounts)))


def require_space(folder: Path, *, need: int, parts: str) -> None:
    """Refuse to begin what will not fit.

    Args:
        folder: Where it is to be written.
        need: Bytes.
        parts: What takes how much, in words.

    Raises:
        SpaceError: Less is free.
    """
    free = free_bytes(folder)
    if free < need:
        raise SpaceError(
            f"needs {need / GIGABYTE:.1f} GB in {folder}, has {free / GIGABYTE:.1f}: {parts}",
            reference="no-space",
            hint=_MORE_ROOM,
        )


@contextmanager
def enough_space(folder: Path) -> Iterator[None]:
    """Say of a full disk, a quota or a limit on file sizes that it is one.

    Args:
        folder: What was written to.

    Raises:
        SpaceError: In place of the error of the system.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise SpaceError(
            f"{error.filename or folder}: {error.strerror}", reference="no-space", hint=_MORE_ROOM
        ) from error


def tree_bytes(folder: Path) -> int:
    """Return the bytes on disk of all files below a folder; 0 if there is none."""
    parents = ((Path(parent), files) for parent, _, files in os.walk(folder))
    return sum(_blocks(parent / name) for parent, files in parents for name in files)


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0
