"""Read the machine around the environment."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from envdoctor.facts import FactSet, HostFact

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.probes.subject import Subject


def read_host(subject: Subject, facts: FactSet) -> HostFact:
    """Read kernel, C library and space."""
    del facts
    return HostFact(
        machine=platform.machine(),
        kernel=platform.release(),
        glibc=_glibc(),
        shm_bytes=_space(subject.root / "dev/shm", total=True),
        disk_free_bytes=_space(subject.prefix, total=False),
    )


def _glibc() -> str | None:
    """Return glibc's version; None on another C library, such as musl."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None


def _space(path: Path, *, total: bool) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_frsize * (status.f_blocks if total else status.f_bavail)
