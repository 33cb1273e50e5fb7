"""Write to disk so that a power cut takes either nothing or everything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_text(path: Path, text: str, *, encoding: str = "utf-8") -> None:
    """Write a file in one step: either all of it is there, or what was there before.

    Raises:
        OSError: It cannot be written; nothing has changed then.
    """
    replace_bytes(path, text.encode(encoding))


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file in one step, as `replace_text` does.

    Raises:
        OSError: It cannot be written; nothing has changed then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(folder: Path) -> None:
    """Wait until everything on the file system of a folder is on disk.

    For tens of thousands of files this takes a fraction of syncing each.

    Raises:
        OSError: Some of it could not be written.

    Source: syncfs(2).
    """
    import ctypes  # noqa: PLC0415  for built environments only

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)
