"""A healthy machine as facts, for checks to be tried on with one fact changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import (
    CachesFact,
    CompilerFact,
    ContainerFact,
    CudaStartFact,
    Distribution,
    DistributionFiles,
    DistributionsFact,
    Fact,
    FactSet,
    FoundLibrary,
    Gpu,
    HostFact,
    InterpreterFact,
    KernelLogFact,
    LimitsFact,
    LoaderFact,
    LogRecordsFact,
    NcclFilesFact,
    NcclPluginsFact,
    NetworkFact,
    NvidiaFact,
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
)
from envdoctor.runner import run, select
from envdoctor.verdict import Outcome, Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

GIB = 1024**3


def gpu(index: int = 0, capability: str = "9.0", **more: object) -> Gpu:
    fields = {"name": "NVIDIA H200", "memory_bytes": 140 * GIB, "uuid": f"GPU-{index}0000000-aa"}
    return Gpu(index=index, capability=capability, **{**fields, **more})  # type: ignore[arg-type]


def nvidia(*gpus: Gpu, **more: object) -> NvidiaFact:
    gpus = gpus or (gpu(),)
    fields = {"num_devices": len(gpus), "driver": "580.95.05", "gpus": gpus, "cuda": "13.0"}
    return NvidiaFact(**{**fields, **more})  # type: ignore[arg-type]


def installed(*names: str) -> DistributionsFact:
    return DistributionsFact(
        distributions=tuple(
            Distribution(name=name, version=version or "1.0", path=f"/env/{name}.dist-info")
            for name, _, version in (item.partition("==") for item in names)
        )
    )


def variables(**values: str) -> VariablesFact:
    return VariablesFact(values=tuple(sorted(values.items())))


def torch(version: str = "2.10.0+cu128", cuda: str | None = "12.8") -> TorchBuildFact:
    arch = ("sm_70", "sm_90", "sm_120", "compute_120")
    return TorchBuildFact(path="/env/torch", version=version, cuda=cuda, arch=arch)


LIBCUDA = FoundLibrary(
    name="libcuda.so.1",
    path="/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    target="libcuda.so.580.95.05",
)

HEALTHY: tuple[Fact, ...] = (
    PolicyFact(),
    HostFact(
        machine="x86_64", kernel="6.8", glibc="2.36", shm_bytes=64 * GIB, disk_free_bytes=99 * GIB
    ),
    InterpreterFact(
        prefix="/env",
        python="/env/bin/python",
        version="3.11.7",
        is_venv=True,
        site_packages=("/env/lib/python3.11/site-packages",),
    ),
    CachesFact(folders=()),
    ContainerFact(),
    CudaStartFact(),
    KernelLogFact(),
    LimitsFact(),
    LoaderFact(drivers=(LIBCUDA,)),
    LogRecordsFact(),
    ProbeRecordsFact(),
    ServicesFact(),
    StorageFact(),
    RaceProbeFact(),
    RunFact(),
    RecordsFact(distributions=(DistributionFiles(name="torch", num_files=1),)),
    SharedObjectsFact(objects=()),
    NcclFilesFact(),
    NcclPluginsFact(),
    VariablesFact(),
    PtxasFact(),
    UserFact(uid=1000, has_passwd_entry=True, home="/home/user", home_writable=True),
    NetworkFact(interfaces=("lo", "ens3", "ens4f0"), hcas=("mlx5_0", "mlx5_1")),
    CompilerFact(path="/usr/bin/gcc", include="/usr/include/python3.11", has_python_h=True),
    nvidia(),
    torch(),
    installed("torch==2.10.0", "triton==3.6.0"),
)
"""One H200 with torch 2.10.0 for CUDA 12.8."""


def outcomes(check: str, *changed: Fact) -> Sequence[Outcome]:
    """Return what a check says of the healthy machine with some facts changed."""
    facts = FactSet([*HEALTHY, *changed])
    findings = run(select(BUILTIN_CHECKS, [check]), facts)
    return [item.outcome for item in findings if item.check == check]


def outcome(check: str, *changed: Fact) -> Outcome:
    (only,) = outcomes(check, *changed)
    return only


def problem(check: str, *changed: Fact) -> Problem:
    found = outcome(check, *changed)
    assert isinstance(found, Problem), found
    return found


def severity(check: str, *changed: Fact) -> Severity | type[Outcome]:
    found = outcome(check, *changed)
    return found.severity if isinstance(found, Problem) else type(found)
