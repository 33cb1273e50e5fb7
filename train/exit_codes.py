"""The exit codes of `python -m train`, as the README lists them; imports no torch."""

from __future__ import annotations

from enum import IntEnum


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
