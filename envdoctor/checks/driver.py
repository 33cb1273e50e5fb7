"""Checks of the NVIDIA driver and the GPUs against the torch build."""

from __future__ import annotations

import re

from envdoctor.check import check, problems
from envdoctor.compatibility import minimum_drivers
from envdoctor.facts import Gpu, NvidiaFact, PolicyFact, TorchBuildFact
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Skipped, Verdict

_PROFILE_CUDA = 12
"""CUDA major release of the bundled profile for older drivers."""


@check()
def no_nvidia_driver(nvidia: NvidiaFact) -> Verdict:
    """An NVIDIA device is there but no working driver serves it.

    ## What it checks
    NVIDIA devices in sysfs and /dev, against what NVML answers.

    ## Why it matters
    CUDA cannot start, and torch falls back to the CPU without an error.

    ## Remedy
    Install or restart the driver on the host; a reboot cures a mismatch of kernel module and
    library. In a container, start it with the GPUs and the `compute,utility` capabilities.

    ## Source
    NVIDIA Management Library reference; lyulyul/shine-cluster#30.
    """
    if nvidia.num_devices == 0 and nvidia.driver is None:
        return Skipped("no NVIDIA device here")
    if nvidia.driver is not None and not nvidia.error:
        return Ok(f"driver {nvidia.driver}")
    said = nvidia.error or "no driver answers"
    mismatch = "mismatch" in said.lower()
    return Problem(
        culprit="NVIDIA driver",
        owner="admin",
        message=f"{nvidia.num_devices} NVIDIA device(s), but the driver does not work: {said}",
        evidence=(Evidence(subject="NVML", expected="a driver version", found=said),),
        remedy=Remedy(
            kind="reboot" if mismatch else "install-driver",
            text="Reboot: the loaded kernel module is not the installed driver's."
            if mismatch
            else "Install the NVIDIA driver on the host, or give the container its libraries.",
        ),
    )


@check(requires=["torch-not-installed", "no-nvidia-driver"])
def driver_too_old_for_cuda(
    nvidia: NvidiaFact, torch_build: TorchBuildFact, policy: PolicyFact
) -> Verdict:
    """The NVIDIA driver is older than torch's CUDA build needs.

    ## What it checks
    The driver against the minimum for the CUDA major release of the torch build, and against the
    profile's floor. Within a major release any driver from the minimum on will do.

    ## Why it matters
    torch falls back to the CPU with one warning, or fails at the first CUDA call.

    ## Remedy
    Upgrade the driver, or take a torch built for an older CUDA.

    ## Source
    NVIDIA CUDA Compatibility, minor version compatibility; sgl-project/sglang#11395.
    """
    if torch_build.cuda is None or nvidia.driver is None:
        return Skipped("torch is not a CUDA build")
    major = int(torch_build.cuda.partition(".")[0])
    minimum = max(minimum_drivers().get(major), policy.driver_min, key=driver_key)
    if minimum is None:
        return Skipped(f"no minimum driver is recorded for CUDA {torch_build.cuda}")
    if driver_key(nvidia.driver) >= driver_key(minimum):
        return Ok(f"driver {nvidia.driver} serves CUDA {torch_build.cuda} (from {minimum} on)")
    return Problem(
        culprit="NVIDIA driver",
        owner="admin",
        message=f"driver {nvidia.driver} is older than {minimum}, the lowest for "
        f"CUDA {torch_build.cuda} (torch {torch_build.version})",
        evidence=(
            Evidence(subject="NVIDIA driver", expected=f"{minimum} or later", found=nvidia.driver),
        ),
        remedy=Remedy(
            kind="downgrade-wheel-or-upgrade-driver",
            text="Upgrade the driver on the host, or build a profile for an older CUDA.",
            commands=("envdoctor build --profile cu128",) if major > _PROFILE_CUDA else (),
        ),
    )


@check(requires=["torch-not-installed", "no-nvidia-driver"])
def gpu_arch_not_in_build(nvidia: NvidiaFact, torch_build: TorchBuildFact) -> Verdict:
    """Torch holds no code that this GPU can run.

    ## What it checks
    Each GPU's compute capability against the architectures compiled into torch. A GPU X.y runs
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
    if not torch_build.arch:
        return Skipped("the architecture list could not be found in libtorch_python.so")
    found = [
        _lacks_arch(gpu, torch_build) for gpu in nvidia.gpus if not runs(gpu, torch_build.arch)
    ]
    return problems(found, Ok(f"every GPU's code is in {' '.join(torch_build.arch)}"))


def _lacks_arch(gpu: Gpu, torch_build: TorchBuildFact) -> Problem:
    arch = "sm_" + gpu.capability.replace(".", "")
    listed = " ".join(torch_build.arch)
    return Problem(
        culprit=f"GPU {gpu.index}",
        message=f"GPU {gpu.index} ({gpu.name}) is {arch}; torch {torch_build.version} has {listed}",
        evidence=(Evidence(subject="architectures in torch", expected=arch, found=listed),),
        remedy=Remedy(
            kind="install-matching-wheel",
            text=f"Take a torch built for {arch}.",
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


def driver_key(version: str | None) -> tuple[int, ...]:
    """Return a driver version as numbers; empty for None, which sorts first."""
    return tuple(int(part) for part in re.findall(r"\d+", version or ""))
