"""Read the machine around the environment."""

from __future__ import annotations

import os
import platform
import re
from typing import TYPE_CHECKING

from envdoctor.facts import FactSet, HostFact
from envdoctor.probes.files import UnreadableError, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.probes.subject import Subject

_LIBS = ("lib", "usr/lib")


def read_host(subject: Subject, facts: FactSet) -> HostFact:
    """Read kernel, C library and space."""
    del facts
    here = subject.is_this_machine
    return HostFact(
        machine=platform.machine(),
        kernel=platform.release(),
        glibc=_glibc() if here else glibc_of_root(subject.root),
        shm_bytes=_space(subject.root / "dev/shm", total=True) if here else None,
        disk_free_bytes=_space(subject.prefix, total=False),
        system=platform.system() if here else "Linux",
    )


def _glibc() -> str | None:
    """Return glibc's version; None on another C library, such as musl."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None


def glibc_of_root(root: Path) -> str | None:
    """Return the version that stands in a mounted root's C library; None if none is there."""
    for folder in ("lib64", "lib", *(f"{base}/{platform.machine()}-linux-gnu" for base in _LIBS)):
        try:
            text = read_text(root / folder / "libc.so.6")
        except UnreadableError:
            continue
        if match := re.search(r"GNU C Library .{0,60}version (\d+\.\d+)", text or ""):
            return match[1]
    return None


def _space(path: Path, *, total: bool) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_frsize * (status.f_blocks if total else status.f_bavail)
