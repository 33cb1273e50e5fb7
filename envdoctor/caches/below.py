"""Open and make folders below a root without following a link."""

from __future__ import annotations

import os
from contextlib import suppress

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def open_below(root: str, folder: str) -> int:
    """Open a folder below a root; the caller closes the descriptor.

    Raises:
        OSError: A part of the way below the root is a link, no folder, or gone.
    """
    return _walk(root, folder, make=False)


def make_folders(root: str, folder: str) -> int:
    """Open a folder below a root as `open_below` does, making what is missing for oneself alone.

    Raises:
        OSError: A part of the way below the root is a link or no folder, or cannot be made.
    """
    return _walk(root, folder, make=True)


def _walk(root: str, folder: str, *, make: bool) -> int:
    descriptor = os.open(root, _FLAGS)
    for part in [part for part in folder.split("/") if part]:
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=descriptor)
            inner = os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor
