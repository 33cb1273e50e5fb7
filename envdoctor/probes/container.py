"""Read what encloses the processes of the machine: container, memory limit, resource limits."""

from __future__ import annotations

import re
import resource
from typing import TYPE_CHECKING

from envdoctor.facts import ContainerFact, FactSet, LimitsFact
from envdoctor.probes.files import UnreadableError, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path, PurePosixPath

    from envdoctor.probes.subject import Subject

_MARKS = (
    (".dockerenv", "docker"),
    ("run/.containerenv", "podman"),
    (".singularity.d", "apptainer"),
    ("var/run/secrets/kubernetes.io", "kubernetes"),
)
"""Files that a container runtime puts into a root, the more telling last."""

_CGROUP = re.compile(r"kubepods|docker|containerd|libpod|lxc")
_NO_LIMIT = 2**60
"""Bytes; the first version of control groups writes a number near 2**63 where there is no limit."""

_CAPABILITIES = {14: "CAP_IPC_LOCK", 19: "CAP_SYS_PTRACE", 21: "CAP_SYS_ADMIN", 23: "CAP_SYS_NICE"}
"""By bit, as `linux/capability.h` numbers them."""


def read_container(subject: Subject, facts: FactSet) -> ContainerFact:
    """Tell the kind of container from its marks, and the memory that its processes may use."""
    del facts
    return ContainerFact(
        kind=_kind(subject),
        memory_limit_bytes=_memory_limit(subject.root) if subject.is_this_machine else None,
    )


def _kind(subject: Subject) -> str:
    found = [kind for mark, kind in _MARKS if (subject.root / mark).exists()]
    if "KUBERNETES_SERVICE_HOST" in subject.variables:
        found.append("kubernetes")
    if found or not subject.is_this_machine:
        return found[-1] if found else ""
    return "container" if _CGROUP.search(_text(subject.root / "proc/1/cgroup")) else ""


def _memory_limit(root: Path) -> int | None:
    limits = [
        int(text)
        for folder in _cgroup_folders(root)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := _text(folder / name).strip()).isdecimal()
    ]
    lowest = min(limits, default=_NO_LIMIT)
    return None if lowest >= _NO_LIMIT else lowest


def _cgroup_folders(root: Path) -> Iterator[Path]:
    """Yield the control groups that this process is in, and those that enclose them."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        inner = top / path.lstrip("/")
        yield from _up_to(inner, top)


def _up_to(inner: Path, top: Path) -> Iterator[Path]:
    above: list[Path | PurePosixPath] = [inner, *inner.parents]
    for folder in above:
        if not folder.is_relative_to(top):
            return
        yield top / folder.relative_to(top)


def read_limits(subject: Subject, facts: FactSet) -> LimitsFact:
    """Read the limits of this process, which those that the user starts will share.

    Raises:
        LookupError: Another machine's root is inspected.
    """
    del facts
    if not subject.is_this_machine:
        raise LookupError("a mounted root does not tell the limits of its processes")
    status = dict(
        line.split(":", 1)
        for line in _text(subject.root / "proc/self/status").splitlines()
        if ":" in line
    )
    return LimitsFact(
        memlock_bytes=_limit(resource.RLIMIT_MEMLOCK),
        open_files=_limit(resource.RLIMIT_NOFILE),
        capabilities=parse_capabilities(status.get("CapEff", "")),
    )


def parse_capabilities(mask: str) -> tuple[str, ...]:
    """Return the names of the capabilities that matter here, from a hexadecimal mask."""
    try:
        bits = int(mask.strip() or "0", 16)
    except ValueError:
        return ()
    return tuple(name for bit, name in _CAPABILITIES.items() if bits >> bit & 1)


def _limit(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft


def _text(path: Path) -> str:
    try:
        return read_text(path) or ""
    except UnreadableError:
        return ""
