"""The beginning of a file that is being fetched, kept on disk as it comes."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from envdoctor.filesystem import enough_space

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK_BYTES = 1024 * 1024


class Part:
    """The bytes of a file so far, with their hash.

    What is written is handed to the kernel at once, so a killed process loses nothing that it read.

    Args:
        descriptor: Of the open file.
        path: Of the file, for messages.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._hash = hashlib.sha256()
        self.length = 0
        self.sources: set[str] = set()
        """Where the bytes come from; `earlier` for those that were there."""

    def load(self) -> None:
        """Take in what is there already."""
        while chunk := os.pread(self._descriptor, _CHUNK_BYTES, self.length):
            self._hash.update(chunk)
            self.length += len(chunk)
            self.sources.add("earlier")

    def write(self, chunk: bytes, source: str) -> None:
        """Add bytes.

        Raises:
            SpaceError: They do not fit.
        """
        self.sources.add(source)
        rest = memoryview(chunk)
        while rest:
            with enough_space(self._path):
                written = os.pwrite(self._descriptor, rest, self.length)
            self._hash.update(rest[:written])
            self.length += written
            rest = rest[written:]

    def restart(self) -> None:
        """Forget all bytes."""
        os.ftruncate(self._descriptor, 0)
        self._hash = hashlib.sha256()
        self.length = 0
        self.sources = set()

    def set_aside(self, path: Path) -> None:
        """Leave what was written under another name, and begin anew."""
        self._path.replace(path)
        fresh = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _lock(fresh)
        os.dup2(fresh, self._descriptor, inheritable=False)
        os.close(fresh)
        self.restart()

    @property
    def sha256(self) -> str:
        """The hash of the bytes so far."""
        return self._hash.hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[Part]:
    """Open the beginning of a file, alone: waits while another process fetches the same one.

    The file may be gone when the wait is over, because the other process has finished it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(descriptor)
            if not _is_at(descriptor, path):
                continue
            found = Part(descriptor, path)
            found.load()
            yield found
            return
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> None:
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
