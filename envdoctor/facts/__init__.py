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
    ContainerFact,
    CudaStartFact,
    Gpu,
    GpuProcess,
    HostFact,
    KernelLogFact,
    LimitsFact,
    MigDevice,
    NcclFile,
    NcclFilesFact,
    NetworkFact,
    NvidiaFact,
    ServicesFact,
    UserFact,
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
from envdoctor.facts.toolchain import (
    CompilerFact,
    LogRecordsFact,
    ProbeRecordsFact,
    Ptxas,
    PtxasFact,
    RunRecord,
)

__all__ = [
    "CompilerFact",
    "ContainerFact",
    "CudaStartFact",
    "DifferingFile",
    "Distribution",
    "DistributionFiles",
    "DistributionsFact",
    "Fact",
    "FactSet",
    "Gpu",
    "GpuProcess",
    "HostFact",
    "InterpreterFact",
    "KernelLogFact",
    "LimitsFact",
    "LogRecordsFact",
    "MigDevice",
    "NcclFile",
    "NcclFilesFact",
    "NetworkFact",
    "NvidiaFact",
    "PolicyFact",
    "ProbeRecordsFact",
    "Ptxas",
    "PtxasFact",
    "RecordsFact",
    "RunRecord",
    "ServicesFact",
    "SharedObject",
    "SharedObjectsFact",
    "TorchBuildFact",
    "Unavailable",
    "UserFact",
    "VariablesFact",
]
