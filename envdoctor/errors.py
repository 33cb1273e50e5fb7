"""The errors that envdoctor raises on purpose, each with its exit code.

EnvdoctorError              exit 3   envdoctor itself failed
|-- UsageError              exit 2   wrong arguments
|   `-- UserFileError       exit 2   a profile or run file that the user wrote
|-- NoSolutionError         exit 4   no set of packages fits
|-- SourceError             exit 5   an index or file cannot be reached
|-- IntegrityError          exit 6   hash, collision, or a file that is not what it claims
|-- SpaceError              exit 7   no space, or an unsuitable file system
|-- BusyError               exit 8   another envdoctor holds the lock
|-- ToolError               exit 9   uv or Python is missing or unsuitable
`-- VerificationError       exit 1   what was built or given does not pass
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Process exit codes, public and stable."""

    OK = 0
    PROBLEM = 1
    USAGE = 2
    INTERNAL = 3
    NO_SOLUTION = 4
    SOURCE = 5
    INTEGRITY = 6
    SPACE = 7
    BUSY = 8
    TOOL = 9
    INTERRUPTED = 130


class EnvdoctorError(Exception):
    """An expected failure: one line for the user, no traceback.

    Args:
        message: What was found and what was wanted, naming the thing.
        reference: Kebab-case name for scripts and `explain`, such as `profile-not-found`.
        hint: What to do next; empty if the message already says it.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL

    def __init__(self, message: str, *, reference: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.reference = reference
        self.hint = hint


class UsageError(EnvdoctorError):
    """The command line asks for something that does not exist or fit."""

    exit_code = ExitCode.USAGE


class UserFileError(UsageError):
    """A file the user wrote is not valid."""


class NoSolutionError(EnvdoctorError):
    """No set of packages satisfies the profile."""

    exit_code = ExitCode.NO_SOLUTION


class SourceError(EnvdoctorError):
    """A package source cannot be reached or lacks what is wanted."""

    exit_code = ExitCode.SOURCE


class IntegrityError(EnvdoctorError):
    """Bytes are not what a hash, RECORD or lock says."""

    exit_code = ExitCode.INTEGRITY


class SpaceError(EnvdoctorError):
    """Too little space, or a file system that cannot hold an environment."""

    exit_code = ExitCode.SPACE


class BusyError(EnvdoctorError):
    """Another envdoctor process works on the same thing."""

    exit_code = ExitCode.BUSY


class ToolError(EnvdoctorError):
    """uv or a Python interpreter is missing or unsuitable."""

    exit_code = ExitCode.TOOL


class VerificationError(EnvdoctorError):
    """An environment does not pass its checks."""

    exit_code = ExitCode.PROBLEM
