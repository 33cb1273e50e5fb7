"""Read files that a user named, whatever they turn out to be."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from envdoctor.errors import UserFileError

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1024**2
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read(
    path: Path, *, reference: str, limit_bytes: int = MIB, may_be_stream: bool = False
) -> bytes:
    """Return what is in a file.

    Args:
        path: The file.
        reference: Of the error.
        limit_bytes: No such file is larger.
        may_be_stream: True to read pipes and devices as well, to their end.

    Raises:
        UserFileError: It cannot be read, is no file, or is larger; one line that says which.
    """
    require(path, reference=reference, limit_bytes=limit_bytes, may_be_stream=may_be_stream)
    try:
        with path.open("rb") as stream:
            content = stream.read(limit_bytes + 1)
    except OSError as error:
        raise _wrong(path, _words(error), reference) from None
    if len(content) > limit_bytes:
        raise _wrong(path, _too_large(limit_bytes), reference)
    return content


def require(
    path: Path, *, reference: str, limit_bytes: int = MIB, may_be_stream: bool = False
) -> None:
    """Refuse what is no file, or too large a one; see `read`, which does this first.

    Raises:
        UserFileError: It is.
    """
    try:
        status = path.stat()
        if not os.access(path, os.R_OK):
            raise PermissionError(13, "")
    except OSError as error:
        raise _wrong(path, _words(error), reference) from None
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR or (kind != stat.S_IFREG and not may_be_stream):
        raise _wrong(path, f"it is {_KINDS.get(kind, 'no file')}; a file is wanted", reference)
    if status.st_size > limit_bytes:
        raise _wrong(path, _too_large(limit_bytes), reference)


def _words(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "no such file"
        case PermissionError():
            return "it may not be read: no permission"
        case _:
            return f"it cannot be read: {error.strerror or error}"


def _too_large(limit_bytes: int) -> str:
    return f"it is larger than {limit_bytes // MIB} MiB, as no such file is"


def _wrong(path: Path, problem: str, reference: str) -> UserFileError:
    return UserFileError(f"{path}: {problem}", reference=reference)
