"""Read the ELF headers of the NVIDIA packages' shared objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.facts import (
    Distribution,
    DistributionsFact,
    FactSet,
    SharedObject,
    SharedObjectsFact,
)
from envdoctor.probes.elf import ElfError, read_elf
from envdoctor.probes.files import UnreadableError, read_text
from envdoctor.probes.record import is_library, parse_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.subject import Subject


def read_shared_objects(subject: Subject, facts: FactSet) -> SharedObjectsFact:
    """Read each recorded shared object of an `nvidia-*` distribution that is on disk."""
    del subject
    found = facts.need(DistributionsFact).distributions
    return SharedObjectsFact(
        objects=tuple(
            read_object(path, dist.name)
            for dist in found
            if dist.name.startswith("nvidia-") and dist.has_record
            for path in _recorded_libraries(dist)
            if Path(path).exists()
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


def _recorded_libraries(dist: Distribution) -> Iterator[str]:
    try:
        text = read_text(f"{dist.path}/RECORD") or ""
    except UnreadableError:
        return
    site = str(Path(dist.path).parent)
    for path, _ in parse_record(text):
        if is_library(path):
            yield f"{site}/{path}"
