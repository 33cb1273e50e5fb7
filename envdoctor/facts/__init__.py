"""Readings of one environment on one machine, as plain values.

Absence is a fact (`TorchBuildFact(version=None)`); `Unavailable` means that a probe could not look.
"""

from __future__ import annotations

from envdoctor.facts.builds import (
    CompanionBuild,
    CompanionBuildsFact,
    OtherGpusFact,
)
from envdoctor.facts.caches import (
    CacheEntry,
    CacheFolder,
    CachesFact,
    CompileCachesFact,
    EntryClass,
    PathOwner,
    PathOwnersFact,
    PathStep,
    VerifiedCache,
)
from envdoctor.facts.fact import (
    Fact,
    FactSet,
    Unavailable,
)
from envdoctor.facts.imports import (
    Extension,
    ExtensionsFact,
    ImportFolder,
    ImportPathFact,
    ModuleCopy,
    StartupFile,
)
from envdoctor.facts.libraries import (
    SharedObject,
    SharedObjectsFact,
    TorchBuildFact,
)
from envdoctor.facts.library_folders import (
    LibraryFolder,
    LibraryFoldersFact,
)
from envdoctor.facts.loader import (
    FoundLibrary,
    LoadedObject,
    LoaderCacheFact,
    LoaderConfigFact,
    LoaderFact,
    Shadow,
    Unmet,
    Via,
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
    NcclPluginsFact,
    NetworkFact,
    NvidiaFact,
    ServicesFact,
    UserFact,
    VariablesFact,
)
from envdoctor.facts.packages import (
    Distribution,
    DistributionsFact,
    InterpreterFact,
)
from envdoctor.facts.policy import (
    PolicyFact,
    Suppression,
    SuppressionsFact,
)
from envdoctor.facts.probes import (
    AllReduceProbeFact,
    AttentionCase,
    AttentionProbeFact,
    ComputeProbeFact,
    ImportProbeFact,
    LoadedLibrary,
    Operation,
    ProbeRun,
)
from envdoctor.facts.records import (
    DifferingFile,
    DistributionFiles,
    RecordsFact,
    SharedFile,
    SharedPaths,
)
from envdoctor.facts.storage import (
    Mount,
    StorageFact,
)
from envdoctor.facts.toolchain import (
    CompilerFact,
    LogRecordsFact,
    ProbeRecordsFact,
    Ptxas,
    PtxasFact,
    RunRecord,
)
from envdoctor.facts.venv import (
    CondaFact,
    Launcher,
    OpenMpFact,
    VenvFact,
)

__all__ = [
    "AllReduceProbeFact",
    "AttentionCase",
    "AttentionProbeFact",
    "CacheEntry",
    "CacheFolder",
    "CachesFact",
    "CompanionBuild",
    "CompanionBuildsFact",
    "CompileCachesFact",
    "CompilerFact",
    "ComputeProbeFact",
    "CondaFact",
    "ContainerFact",
    "CudaStartFact",
    "DifferingFile",
    "Distribution",
    "DistributionFiles",
    "DistributionsFact",
    "EntryClass",
    "Extension",
    "ExtensionsFact",
    "Fact",
    "FactSet",
    "FoundLibrary",
    "Gpu",
    "GpuProcess",
    "HostFact",
    "ImportFolder",
    "ImportPathFact",
    "ImportProbeFact",
    "InterpreterFact",
    "KernelLogFact",
    "Launcher",
    "LibraryFolder",
    "LibraryFoldersFact",
    "LimitsFact",
    "LoadedLibrary",
    "LoadedObject",
    "LoaderCacheFact",
    "LoaderConfigFact",
    "LoaderFact",
    "LogRecordsFact",
    "MigDevice",
    "ModuleCopy",
    "Mount",
    "NcclFile",
    "NcclFilesFact",
    "NcclPluginsFact",
    "NetworkFact",
    "NvidiaFact",
    "OpenMpFact",
    "Operation",
    "OtherGpusFact",
    "PathOwner",
    "PathOwnersFact",
    "PathStep",
    "PolicyFact",
    "ProbeRecordsFact",
    "ProbeRun",
    "Ptxas",
    "PtxasFact",
    "RecordsFact",
    "RunRecord",
    "ServicesFact",
    "Shadow",
    "SharedFile",
    "SharedObject",
    "SharedObjectsFact",
    "SharedPaths",
    "StartupFile",
    "StorageFact",
    "Suppression",
    "SuppressionsFact",
    "TorchBuildFact",
    "Unavailable",
    "Unmet",
    "UserFact",
    "VariablesFact",
    "VenvFact",
    "VerifiedCache",
    "Via",
]
