"""Read mounted file systems and the space that is left for temporary files."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from envdoctor.facts import FactSet, Mount, StorageFact
from envdoctor.probes.files import UnreadableError, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.subject import Subject

_ESCAPE = re.compile(r"\\([0-7]{3})")


def read_storage(subject: Subject, facts: FactSet) -> StorageFact:
    """Read the kernel's list of mounts, and free space where temporary files go.

    Raises:
        LookupError: Another machine's root is inspected, or the list cannot be read.
    """
    del facts
    if not subject.is_this_machine:
        raise LookupError("a mounted root does not tell what is mounted when it runs")
    try:
        text = read_text(subject.root / "proc/self/mounts") or ""
    except UnreadableError as error:
        raise LookupError(f"/proc/self/mounts: {error}") from error
    folder = subject.variables.get("TMPDIR") or "/tmp"
    free = _free_bytes(folder)
    return StorageFact(
        mounts=tuple(parse_mounts(text)), free=() if free is None else ((folder, free),)
    )


def parse_mounts(text: str) -> Iterator[Mount]:
    r"""Yield the mounts of a list in the form of fstab(5).

    Source: proc(5), /proc/pid/mounts; spaces in paths are written as `\040`.
    """
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) >= 4:  # noqa: PLR2004  device, path, kind, options
            path = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1])
            yield Mount(path=path, kind=fields[2], options=fields[3])


def _free_bytes(folder: str) -> int | None:
    try:
        status = os.statvfs(folder)
    except (OSError, ValueError):
        return None
    return status.f_frsize * status.f_bavail
