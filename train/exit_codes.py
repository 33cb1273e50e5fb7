"""The exit codes of `python -m train`, as the README lists them; imports no torch."""

from __future__ import annotations

import errno
from enum import IntEnum

from train.durable import NO_SPACE

_UNSUITABLE = (errno.EROFS, errno.EIO, errno.ESTALE)
_UNUSABLE = (
    *(errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR),
    *(errno.ELOOP, errno.ENAMETOOLONG),
)


class ExitCode(IntEnum):
    """How a command ended; those of envdoctor that a trainer needs, with the same numbers."""

    OK = 0
    PROBLEM = 1
    """What was made, or found, does not pass."""
    USAGE = 2
    """Wrong arguments, or a file that the user wrote."""
    INTERNAL = 3
    """A bug, or a device that failed."""
    SPACE = 7
    """No space, or an unsuitable file system."""
    BUSY = 8
    """Another process is at work on the same thing."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C or SIGTERM; can be gone on with."""


def exit_code_of(error: Exception) -> ExitCode | None:
    """Return the exit code of an error that a file or a disk is to blame for; None of others."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (*NO_SPACE, *_UNSUITABLE):
        return ExitCode.SPACE
    return ExitCode.USAGE if number in _UNUSABLE else None
