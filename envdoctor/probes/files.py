"""Read files that may be anything: missing, huge, a FIFO, not text."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

TEXT_LIMIT = 64 * 1024 * 1024
"""Bytes; the RECORD of the largest wheel seen (torch 2.15) is 2 MB."""

_BLOCK = 64 * 1024


class UnreadableError(Exception):
    """A file is there but is not what a reader can take; the message says what it is."""


def read_text(path: str | Path, *, limit: int = TEXT_LIMIT) -> str | None:
    """Return a regular file's text, or None if there is no such file.

    Bytes that are not UTF-8 survive as surrogates, so that paths can still be looked up.

    Raises:
        UnreadableError: It is no regular file, larger than `limit` bytes, or cannot be read.
    """
    opened = _open(path, limit)
    if opened is None:
        return None
    descriptor, size = opened
    try:
        return _read_all(descriptor, size, limit).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UnreadableError(str(error)) from error
    finally:
        os.close(descriptor)


def open_regular(path: str | Path, *, limit: int = TEXT_LIMIT) -> BinaryIO | None:
    """Open a regular file for reading, or return None if there is no such file.

    Raises:
        UnreadableError: It is no regular file, larger than `limit` bytes, or cannot be opened.
    """
    opened = _open(path, limit)
    return None if opened is None else os.fdopen(opened[0], "rb")


def _open(path: str | Path, limit: int) -> tuple[int, int] | None:
    """Return a descriptor and the size in bytes of a regular file; None if there is no such file.

    Raises:
        UnreadableError: It is no regular file, larger than `limit` bytes, or cannot be opened.
    """
    try:
        # A FIFO without a writer would block a plain open for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UnreadableError(str(error)) from error
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
        return descriptor, status.st_size
    os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError(f"it is {describe_mode(status.st_mode)}")
    raise UnreadableError(f"it has {status.st_size} bytes, more than {limit} are not read")


def _read_all(descriptor: int, size: int, limit: int) -> bytes:
    """Read to the end or the limit; a buffered stream costs more than most files' contents.

    Files of /proc state a size of 0.
    """
    parts: list[bytes] = []
    left = limit
    while left > 0 and (part := os.read(descriptor, min(left, size + 1 if size else _BLOCK))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def describe_mode(mode: int) -> str:
    """Name the kind of a file from its mode."""
    kinds = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for test, name in kinds if test(mode)), "a device")


def list_folder(path: str | Path) -> list[str]:
    """Return a folder's entries, sorted; empty if it cannot be listed."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208  names, not thousands of Path objects
    except (OSError, ValueError):  # ValueError: a path that no file system can hold
        return []


def is_folder(path: str | Path) -> bool:
    """Tell whether a folder is there; a path that cannot be looked at is none."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        return False


def read_head(path: str | Path, size: int) -> bytes:
    """Return the first bytes of a regular file; empty if it is none or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(descriptor, size) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def modified_at(path: str | Path) -> int | None:
    """Return when a regular file was last written, as seconds since the epoch; None without one."""
    try:
        status = os.stat(path)  # noqa: PTH116  a Path object would cost as much as the call
    except (OSError, ValueError):
        return None
    return int(status.st_mtime) if stat.S_ISREG(status.st_mode) else None
