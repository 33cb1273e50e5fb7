"""Checks of the GPUs: what torch was built for, what they wait for, who holds their memory."""

from __future__ import annotations

import re

from envdoctor.check import check, problems
from envdoctor.compatibility import official_arch
from envdoctor.facts import (
    CudaStartFact,
    Gpu,
    NvidiaFact,
    ServicesFact,
    TorchBuildFact,
    VariablesFact,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict
from envdoctor.visible_devices import VARIABLE, visible_devices

_SYSTEM_NOT_READY = 802
_FABRIC_MANAGER = "nvidia-fabricmanager"
_RUNS = re.compile(r"(^|=)(active|running|true)\b", re.IGNORECASE)
_MUCH_MEMORY = 0.1
"""Share of a GPU's memory from which on a left-over process is worth a warning."""


@check(requires=["torch-not-installed", "no-nvidia-driver"])
def gpu_arch_not_in_build(nvidia: NvidiaFact, torch_build: TorchBuildFact) -> Verdict:
    """Torch holds no code that this GPU can run.

    ## What it checks
    Each GPU's compute capability against the architectures compiled into torch, as
    libtorch_python.so lists them, else as the official wheel has them. A GPU X.y runs
    `sm_Xz` code with z up to y, and PTX (`compute_`) of its own or an older capability; code with
    the suffix `a` runs on exactly its capability.

    ## Why it matters
    The first kernel stops with "no kernel image is available for execution on the device".

    ## Remedy
    Take a torch whose build holds the GPU's architecture; CUDA 13 builds dropped all before 7.5.

    ## Source
    CUDA C++ Programming Guide, binary and PTX compatibility; Nerogar/OneTrainer#1572.
    """
    if torch_build.cuda is None:
        return Skipped("torch is not a CUDA build")
    if not nvidia.gpus:
        return Skipped("NVML lists no GPU")
    listed = known_arch(torch_build)
    if not listed:
        return Skipped("the architecture list could not be found in libtorch_python.so")
    without = [gpu for gpu in nvidia.gpus if not runs(gpu, listed)]
    if not without:
        return Ok(f"every GPU's code is in {' '.join(listed)}")
    return _lacks_arch(without, torch_build, " ".join(listed))


def known_arch(torch_build: TorchBuildFact) -> tuple[str, ...]:
    """Return the architectures in a build: its own list, else that of the official wheel.

    Builds of others, such as `2.8.0a0+5228986c39.nv25.06`, hold what their makers chose; of those
    without a list nothing is known.
    """
    if torch_build.arch:
        return torch_build.arch
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\+cu\d+)?", torch_build.version or "")
    if match is None or torch_build.cuda is None:
        return ()
    return official_arch(torch_build.cuda, tuple(map(int, match.groups())))


def _lacks_arch(gpus: list[Gpu], torch_build: TorchBuildFact, listed: str) -> Problem:
    """Tell of all GPUs at once: they ask for another build, and one replaces it for all."""
    arch = {f"sm_{gpu.capability.replace('.', '')}": gpu for gpu in reversed(gpus)}
    told = ", ".join(f"GPU {gpu.index} ({gpu.name}) is {name}" for name, gpu in arch.items())
    if more := len(gpus) - len(arch):
        told += f" and {more} more like it"
    return Problem(
        culprit="torch",
        message=f"{told}; torch {torch_build.version} has {listed}",
        evidence=tuple(
            Evidence(
                subject=f"architectures in torch, for GPU {gpu.index}", expected=name, found=listed
            )
            for name, gpu in arch.items()
        ),
        remedy=Remedy(
            kind="install-matching-wheel",
            text=f"Take a torch built for {' and '.join(arch)}.",
            commands=("envdoctor build --profile cu128",) if torch_build.cuda != "12.8" else (),
        ),
    )


def runs(gpu: Gpu, arch: tuple[str, ...]) -> bool:
    """Tell whether one of the compiled architectures runs on a GPU."""
    major, _, minor = gpu.capability.partition(".")
    return any(_runs_one(int(major), int(minor or 0), name) for name in arch)


def _runs_one(major: int, minor: int, name: str) -> bool:
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
    if match is None:
        return False
    kind, code_major, code_minor, suffix = match[1], int(match[2]), int(match[3]), match[4]
    if suffix == "a":
        return (major, minor) == (code_major, code_minor)
    if kind == "compute" and not suffix:
        return (code_major, code_minor) <= (major, minor)
    return code_major == major and code_minor <= minor


@check(requires=["no-nvidia-driver"])
def gpu_fabric_not_ready(
    nvidia: NvidiaFact, services: ServicesFact, cuda_start: CudaStartFact
) -> Verdict:
    """The GPUs wait for the fabric manager.

    ## What it checks
    The state of each GPU's NVLink fabric as NVML tells it, the fabric manager's service, and
    whether CUDA refused with error 802.

    ## Why it matters
    On machines with NVSwitch, CUDA starts only after the fabric manager has set up the switches;
    until then `torch.cuda.is_available()` is False with "system not yet initialized".

    ## Remedy
    The host's administrator starts `nvidia-fabricmanager`, of the driver's own version.

    ## Source
    NVIDIA Fabric Manager user guide; CUDA driver API, CUDA_ERROR_SYSTEM_NOT_READY.
    """
    if not nvidia.gpus:
        return Skipped("NVML lists no GPU")
    waiting = [gpu for gpu in nvidia.gpus if gpu.fabric in {"not_started", "in_progress"}]
    state = next((state for name, state in services.states if "fabric" in name.lower()), "")
    refused = cuda_start.code == _SYSTEM_NOT_READY
    is_down = bool(state) and not _RUNS.search(state)
    has_fabric = any(gpu.fabric not in {"", "not_supported"} for gpu in nvidia.gpus)
    cannot_start = refused or (bool(waiting) and cuda_start.code != 0)
    if not cannot_start and not (is_down and has_fabric):
        return Ok("no GPU waits for its fabric")
    shown = f"GPU {waiting[0].index} is {waiting[0].fabric}" if waiting else "set up"
    return Problem(
        culprit=_FABRIC_MANAGER,
        owner="admin",
        severity=Severity.ERROR if cannot_start else Severity.WARNING,
        message=f"the NVLink fabric of {len(waiting) or len(nvidia.gpus)} GPU(s) is not served: "
        f"{shown}, service {_FABRIC_MANAGER} {state or 'not seen'}",
        evidence=(
            Evidence(subject="NVLink fabric", expected="completed", found=shown),
            Evidence(subject=_FABRIC_MANAGER, expected="running", found=state or "not seen"),
            Evidence(subject="CUDA", expected="success", found=cuda_start.name or "not started"),
        ),
        remedy=Remedy(
            kind="admin-start-service",
            text="Start the fabric manager of the driver's version on the host.",
            commands=(f"sudo systemctl enable --now {_FABRIC_MANAGER}",),
        ),
    )


@check(requires=["no-nvidia-driver"])
def gpu_memory_held(nvidia: NvidiaFact, variables: VariablesFact) -> Verdict:
    """Processes hold memory of a GPU.

    ## What it checks
    The compute processes that NVML lists for each GPU that CUDA_VISIBLE_DEVICES leaves visible,
    and whether their parent is gone.

    ## Why it matters
    A run that was killed may leave workers behind that keep the memory; the next one then stops
    with "out of memory" although nothing seems to run.

    ## Remedy
    End the left-over processes by their PIDs.

    ## Source
    NVIDIA Management Library reference, compute running processes.
    """
    if not nvidia.gpus:
        return Skipped("NVML lists no GPU")
    visible = visible_devices(variables.get(VARIABLE), nvidia.gpus).gpus
    held = [gpu for gpu in visible if gpu.processes]
    return problems([_held(gpu) for gpu in held], Ok("no process holds memory of a GPU"))


def _held(gpu: Gpu) -> Problem:
    orphans = [process for process in gpu.processes if process.is_orphan]
    much = (gpu.memory_used_bytes or 0) >= _MUCH_MEMORY * gpu.memory_bytes
    listed = ", ".join(f"{item.pid} ({item.name or 'not seen here'})" for item in gpu.processes)
    used = f"{gpu.memory_used_bytes // 1024**2} MiB" if gpu.memory_used_bytes else "memory"
    return Problem(
        culprit=f"GPU {gpu.index}",
        severity=Severity.WARNING if orphans and much else Severity.INFO,
        message=f"GPU {gpu.index}: {used} held by PID {listed}"
        + (f"; {len(orphans)} of them left behind by a parent that is gone" if orphans else ""),
        evidence=tuple(
            Evidence(subject=f"PID {item.pid}", found=_bytes_text(item.memory_bytes))
            for item in gpu.processes
        ),
        remedy=Remedy(
            kind="end-process",
            text="End what was left behind; other processes may be somebody's work.",
            commands=tuple(f"kill {item.pid}" for item in orphans),
        ),
    )


def _bytes_text(number: int | None) -> str:
    return "holds memory" if number is None else f"holds {number // 1024**2} MiB"
