"""List the files of a compile cache, following no link."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from envdoctor.caches.entries import CachedFile
from envdoctor.value import value

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_FILES = 500_000
"""Files of one cache that are looked at; they take about 100 MB."""

_LOCKS = "/proc/locks"


@value
class Listing:
    """The files of a cache, sorted by path, its folders, and why others were left out."""

    files: tuple[CachedFile, ...] = ()
    folders: tuple[CachedFile, ...] = ()
    unread: tuple[str, ...] = ()


def list_files(root: str, *, apart_from: Collection[str] = ()) -> Listing:
    """List regular files, links and whatever else lies below a folder; folders are walked.

    Args:
        root: The cache's folder.
        apart_from: Folders below it that are other caches, absolute.
    """
    found: list[CachedFile] = []
    folders: list[CachedFile] = []
    unread: list[str] = []
    pending = [""]
    while pending:
        parent = pending.pop()
        try:
            with os.scandir(f"{root}/{parent}") as entries:
                for entry in entries:
                    path = parent + entry.name
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_folder and f"{root}/{path}" in apart_from:
                        continue
                    state = entry.stat(follow_symlinks=False)
                    file = CachedFile(
                        path, state.st_size, state.st_mtime_ns, state.st_mode, state.st_uid
                    )
                    if is_folder:
                        pending.append(f"{path}/")
                        folders.append(file)
                    else:
                        found.append(file)
        except FileNotFoundError:
            continue  # others clean up as well
        except OSError as error:
            unread.append(f"{root}/{parent}: {error.strerror}")
        if len(found) > MAX_FILES:
            unread.append(f"all after {MAX_FILES} files")
            break
    found.sort()
    return Listing(tuple(found), tuple(folders), tuple(unread))


def held_locks() -> dict[int, int]:
    """Return who holds a lock on which file, as the kernel tells it: inode to process id.

    Asking the kernel disturbs nobody; trying to take a lock could make its user wait.

    Source: proc(5), /proc/locks.
    """
    found: dict[int, int] = {}
    try:
        with open(_LOCKS, encoding="ascii") as stream:  # noqa: PTH123  no Path is at hand
            for line in stream:
                fields = line.replace("->", "").split()
                if len(fields) > 5 and fields[5].rpartition(":")[2].isdecimal():  # noqa: PLR2004
                    found[int(fields[5].rpartition(":")[2])] = int(fields[4])
    except (OSError, ValueError):
        return found
    return found


def is_running(pid: int) -> bool:
    """Tell whether a process is there, whoever it belongs to."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0


def inode_of(path: str) -> int:
    """Return a file's inode number; 0 if it is gone."""
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def is_regular(file: CachedFile) -> bool:
    """Tell whether a listed file is a regular one."""
    return stat.S_ISREG(file.mode)
