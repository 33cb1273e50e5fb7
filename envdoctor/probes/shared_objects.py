"""Read the ELF headers of the recorded shared objects of torch, Triton and the NVIDIA packages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from envdoctor.facts import (
    FactSet,
    RecordsFact,
    SharedObject,
    SharedObjectsFact,
)
from envdoctor.probes.elf import ElfError, read_elf
from envdoctor.probes.record import matters

if TYPE_CHECKING:
    from envdoctor.probes.subject import Subject


def read_shared_objects(subject: Subject, facts: FactSet) -> SharedObjectsFact:
    """Read the recorded shared objects of what matters or was asked for, if they are on disk."""
    wanted = subject.policy.packages
    return SharedObjectsFact(
        objects=tuple(
            read_object(path, name)
            for name, path in facts.need(RecordsFact).libraries
            if (matters(name) or name in wanted) and os.path.exists(path)  # noqa: PTH110  never raises, whatever the path is
        )
    )


def read_object(path: str, distribution: str) -> SharedObject:
    """Read one shared object's headers, or why they cannot be read."""
    try:
        header = read_elf(path)
    except (ElfError, OSError) as error:
        return SharedObject(path=path, distribution=distribution, error=str(error))
    return SharedObject(
        path=path, distribution=distribution, machine=header.machine, soname=header.soname
    )
