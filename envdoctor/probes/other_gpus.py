"""Read whether GPUs of other vendors are served here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.facts import FactSet, OtherGpusFact

if TYPE_CHECKING:
    from envdoctor.probes.subject import Subject


def read_other_gpus(subject: Subject, facts: FactSet) -> OtherGpusFact:
    """Look for the device of AMD's compute driver, which ROCm opens before anything else."""
    del facts
    return OtherGpusFact(has_amd=(subject.root / "dev/kfd").exists())
