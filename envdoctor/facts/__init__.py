"""Readings of one environment on one machine, as plain values.

Absence is a fact (`TorchBuildFact(version=None)`); `Unavailable` means that a probe could not look.
"""

from __future__ import annotations

from envdoctor.facts.fact import (
    Fact,
    FactSet,
    Unavailable,
)
from envdoctor.facts.libraries import (
    SharedObject,
    SharedObjectsFact,
    TorchBuildFact,
)
from envdoctor.facts.machine import (
    Gpu,
    HostFact,
    NvidiaFact,
    VariablesFact,
)
from envdoctor.facts.packages import (
    DifferingFile,
    Distribution,
    DistributionFiles,
    DistributionsFact,
    InterpreterFact,
    RecordsFact,
)
from envdoctor.facts.policy import (
    PolicyFact,
)

__all__ = [
    "DifferingFile",
    "Distribution",
    "DistributionFiles",
    "DistributionsFact",
    "Fact",
    "FactSet",
    "Gpu",
    "HostFact",
    "InterpreterFact",
    "NvidiaFact",
    "PolicyFact",
    "RecordsFact",
    "SharedObject",
    "SharedObjectsFact",
    "TorchBuildFact",
    "Unavailable",
    "VariablesFact",
]
