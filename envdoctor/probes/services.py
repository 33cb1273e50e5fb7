"""Read services and the kernel's log, where a GPU's trouble may be told."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from envdoctor.facts import FactSet, KernelLogFact, NvidiaFact, ServicesFact
from envdoctor.probes.files import UnreadableError, list_folder, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envdoctor.probes.subject import Subject

_FABRIC_MANAGER = "nvidia-fabricmanager"
_COMMAND = "nv-fabricmanage"
"""The kernel keeps 15 characters of a program's name."""

_TELLING = ("NVRM", "Xid", "Out of memory", "oom-kill")
_MAX_LOG_RECORDS = 20_000


def read_services(subject: Subject, facts: FactSet) -> ServicesFact:
    """Tell whether the fabric manager runs, where a GPU waits for its fabric.

    In a container its process cannot be seen; then nothing is said of it.
    """
    gpus = facts.need(NvidiaFact).gpus
    waiting = any(gpu.fabric in {"not_started", "in_progress"} for gpu in gpus)
    if not waiting or not subject.is_this_machine:
        return ServicesFact()
    if _runs(subject.root, _COMMAND):
        return ServicesFact(states=((_FABRIC_MANAGER, "running"),))
    sees_host = _first_line(subject.root / "proc/2/comm") == "kthreadd"
    return ServicesFact(states=((_FABRIC_MANAGER, "stopped"),) if sees_host else ())


def _runs(root: Path, command: str) -> bool:
    return any(
        name.isdecimal() and _first_line(root / "proc" / name / "comm") == command
        for name in list_folder(root / "proc")
    )


def read_kernel_log(subject: Subject, facts: FactSet) -> KernelLogFact:
    """Read the kernel's log on a machine with NVIDIA devices.

    Raises:
        LookupError: Another machine's root is inspected.
        OSError: This user may not read the log.
    """
    if not facts.need(NvidiaFact).num_devices:
        return KernelLogFact()
    if not subject.is_this_machine:
        raise LookupError("a mounted root has no kernel log")
    descriptor = os.open(subject.root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        lines = tuple(line for line in _messages(descriptor) if any(w in line for w in _TELLING))
    finally:
        os.close(descriptor)
    return KernelLogFact(lines=lines)


def _messages(descriptor: int) -> Iterator[str]:
    # Each read gives one record. It fails at the end, and where the kernel overwrote what was next.
    with suppress(BlockingIOError, BrokenPipeError):
        for _ in range(_MAX_LOG_RECORDS):
            yield _message(os.read(descriptor, 8192))


def _message(record: bytes) -> str:
    """Return the text of a record of /dev/kmsg.

    Source: Documentation/ABI/testing/dev-kmsg.
    """
    return record.decode("utf-8", "replace").partition(";")[2].partition("\n")[0]


def _first_line(path: Path) -> str:
    try:
        return (read_text(path) or "").partition("\n")[0].strip()
    except UnreadableError:
        return ""
