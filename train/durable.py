"""Write files and folders that are there whole or not at all; imports no torch."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of the errors that say that a disk, or a share of it, is full."""


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that whoever reads it finds all of it, or what was there before.

    Raises:
        OSError: It cannot be written; what was there stays.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        temporary.write_text(text, "utf-8")
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # on a full disk it would only take space


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of another once its files are written.

    A folder cannot be replaced in one step while it holds files, so the former one steps aside
    first; between the two renames it is there under a name of its own.

    Args:
        folder: Left as it was where writing fails.
    """
    temporary = folder.with_name(f".{folder.name}.partial")
    former = folder.with_name(f".{folder.name}.former")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        shutil.rmtree(former, ignore_errors=True)
        if folder.exists():
            folder.replace(former)
        temporary.replace(folder)
        shutil.rmtree(former, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
