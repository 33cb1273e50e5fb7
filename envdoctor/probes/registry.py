"""Every probe, listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.facts import (
    AllReduceProbeFact,
    AttentionProbeFact,
    CachesFact,
    CompanionBuildsFact,
    CompileCachesFact,
    CompilerFact,
    ComputeProbeFact,
    CondaFact,
    ContainerFact,
    CudaStartFact,
    DistributionsFact,
    ExtensionsFact,
    FactSet,
    HostFact,
    ImportPathFact,
    ImportProbeFact,
    InterpreterFact,
    KernelLogFact,
    LibraryFoldersFact,
    LimitsFact,
    LoaderCacheFact,
    LoaderConfigFact,
    LoaderFact,
    LogRecordsFact,
    NcclFilesFact,
    NcclPluginsFact,
    NetworkFact,
    NvidiaFact,
    OpenMpFact,
    OtherGpusFact,
    PathOwnersFact,
    PolicyFact,
    ProbeRecordsFact,
    PtxasFact,
    RaceProbeFact,
    RecordsFact,
    RunFact,
    ServicesFact,
    SharedObjectsFact,
    StorageFact,
    TorchBuildFact,
    UserFact,
    VariablesFact,
    VenvFact,
)
from envdoctor.probes.caches import read_caches, read_path_owners
from envdoctor.probes.collecting import collect_with
from envdoctor.probes.companions import read_companion_builds
from envdoctor.probes.compile_caches import read_compile_caches
from envdoctor.probes.container import read_container, read_limits
from envdoctor.probes.distributions import read_distributions
from envdoctor.probes.extensions import read_extensions
from envdoctor.probes.host import read_host
from envdoctor.probes.imports import read_import_path
from envdoctor.probes.interpreter import read_interpreter
from envdoctor.probes.ld_so import read_loader_cache, read_loader_config
from envdoctor.probes.library_folders import read_library_folders
from envdoctor.probes.loader import read_loader
from envdoctor.probes.network import read_nccl_files, read_nccl_plugins, read_network
from envdoctor.probes.nvidia import read_nvidia
from envdoctor.probes.other_gpus import read_other_gpus
from envdoctor.probes.race import probe_race
from envdoctor.probes.recorded_files import read_records
from envdoctor.probes.run_file import read_run
from envdoctor.probes.run_records import read_log_records, read_probe_records
from envdoctor.probes.services import read_kernel_log, read_services
from envdoctor.probes.shared_objects import read_shared_objects
from envdoctor.probes.started import (
    probe_all_reduce,
    probe_attention,
    probe_compute,
    probe_import,
    read_cuda_start,
)
from envdoctor.probes.storage import read_storage
from envdoctor.probes.toolchain import read_compiler, read_ptxas
from envdoctor.probes.torch_build import read_torch_build
from envdoctor.probes.user import read_user
from envdoctor.probes.variables import read_variables
from envdoctor.probes.venv import read_conda, read_openmp, read_venv

if TYPE_CHECKING:
    from collections.abc import Collection

    from envdoctor.facts import Fact
    from envdoctor.probes.collecting import Probe
    from envdoctor.probes.subject import Subject

PROBES: tuple[Probe, ...] = (
    (PolicyFact, lambda subject, _: subject.policy),
    (HostFact, read_host),
    (VariablesFact, read_variables),
    (InterpreterFact, read_interpreter),
    (RunFact, read_run),
    (DistributionsFact, read_distributions),
    (RecordsFact, read_records),
    (SharedObjectsFact, read_shared_objects),
    (LibraryFoldersFact, read_library_folders),
    (TorchBuildFact, read_torch_build),
    (LoaderConfigFact, read_loader_config),
    (LoaderCacheFact, read_loader_cache),
    (LoaderFact, read_loader),
    (NvidiaFact, read_nvidia),
    (ImportProbeFact, probe_import),
    (ComputeProbeFact, probe_compute),
    (AllReduceProbeFact, probe_all_reduce),
    (AttentionProbeFact, probe_attention),
    (RaceProbeFact, probe_race),
    (CudaStartFact, read_cuda_start),
    (ServicesFact, read_services),
    (KernelLogFact, read_kernel_log),
    (ContainerFact, read_container),
    (LimitsFact, read_limits),
    (UserFact, read_user),
    (StorageFact, read_storage),
    (NetworkFact, read_network),
    (NcclFilesFact, read_nccl_files),
    (NcclPluginsFact, read_nccl_plugins),
    (CompilerFact, read_compiler),
    (PtxasFact, read_ptxas),
    (LogRecordsFact, read_log_records),
    (ProbeRecordsFact, read_probe_records),
    (OtherGpusFact, read_other_gpus),
    (CompanionBuildsFact, read_companion_builds),
    (ImportPathFact, read_import_path),
    (ExtensionsFact, read_extensions),
    (VenvFact, read_venv),
    (OpenMpFact, read_openmp),
    (CondaFact, read_conda),
    (PathOwnersFact, read_path_owners),
    (CachesFact, read_caches),
    (CompileCachesFact, read_compile_caches),
)
"""Every probe, in an order in which each finds the facts it builds on."""


def collect(
    subject: Subject,
    given: FactSet | None = None,
    *,
    kinds: Collection[type[Fact]] | None = None,
) -> FactSet:
    """Run every probe whose fact is not given; one that cannot look leaves its reason.

    Args:
        subject: What to look at.
        given: Facts that stand in for this machine's, from a snapshot.
        kinds: The facts that are wanted, with those they build on; None for all.
    """
    wanted = PROBES if kinds is None else [probe for probe in PROBES if probe[0] in kinds]
    return collect_with(wanted, subject, given)
