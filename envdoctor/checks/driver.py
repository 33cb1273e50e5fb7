"""Checks of the NVIDIA driver against its libraries and the torch build."""

from __future__ import annotations

import re

from envdoctor.check import check
from envdoctor.checks.driver_library import version_of, without_forward_compatibility
from envdoctor.compatibility import minimum_drivers
from envdoctor.facts import ContainerFact, LoaderFact, NvidiaFact, PolicyFact, TorchBuildFact
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Skipped, Verdict

_PROFILE_CUDA = 12
"""CUDA major release of the bundled profile for older drivers."""

_MISMATCH = 18
_RESTART_CONTAINER = Remedy(
    kind="container-option",
    text="Start the container anew with its GPUs (`--gpus all`, or CDI devices): it has lost its "
    "way to the driver, as after `systemctl daemon-reload` on the host.",
)
_REBOOT = Remedy(kind="reboot", text="Reboot the host: the driver lost the GPU.")
_INSTALL = Remedy(
    kind="install-system-package",
    text="Install the NVIDIA driver on the host for the kernel that runs, or load its module.",
)
_REMEDIES = {4: _RESTART_CONTAINER, 12: _RESTART_CONTAINER, 15: _REBOOT, 999: _RESTART_CONTAINER}
"""What helps in a container, by NVML's number for the failure. Source: nvml.h."""


@check()
def driver_library_mismatch(nvidia: NvidiaFact, container: ContainerFact) -> Verdict:
    """The driver's libraries are of another version than its kernel module.

    ## What it checks
    The loaded kernel module's version, against the version in the name of the file behind
    `libnvidia-ml.so.1`, and whether NVML refuses with error 18.

    ## Why it matters
    A package upgrade replaced the libraries while the old module stays loaded: what runs goes on,
    nothing new finds a GPU. torch and its packages are not at fault.

    ## Remedy
    Reboot the host, then hold the driver's packages. A container that holds the older libraries
    has to be created anew.

    ## Source
    lyulyul/shine-cluster#30; NVIDIA/nvidia-docker#365; NVML return codes.
    """
    if not _mismatches(nvidia):
        agree = f"module and libraries are {nvidia.driver}" if nvidia.driver else "no driver here"
        return Ok(agree)
    module, library = nvidia.driver or "unknown", nvidia.library or "of another version"
    stale = bool(container.kind) and driver_key(nvidia.library) < driver_key(nvidia.driver)
    return Problem(
        culprit="NVIDIA driver",
        owner="user" if stale else "admin",
        message=f"the loaded kernel module is driver {module}, the libraries are {library}: CUDA "
        "and NVML cannot start, and torch is not the cause",
        evidence=(
            Evidence(subject="/proc/driver/nvidia/version", expected=library, found=module),
            Evidence(
                subject=nvidia.library_path or "libnvidia-ml.so.1", expected=module, found=library
            ),
            Evidence(subject="NVML", expected="success", found=nvidia.error or "not asked"),
        ),
        remedy=Remedy(
            kind="container-option",
            text="Create the container anew: it holds the libraries of the driver before.",
        )
        if stale
        else Remedy(
            kind="reboot",
            text="Reboot the host, so that the module of the installed driver is loaded.",
            commands=("sudo reboot",),
        ),
    )


def _mismatches(nvidia: NvidiaFact) -> bool:
    if nvidia.error_code == _MISMATCH or "version mismatch" in nvidia.error.lower():
        return True
    differ = bool(nvidia.driver and nvidia.library) and nvidia.driver != nvidia.library
    # Where NVML answers, or fails for a reason of its own, the library found by name is not in use.
    return differ and not nvidia.gpus and nvidia.error_code is None and not nvidia.error


@check(requires=["driver-library-mismatch"])
def no_nvidia_driver(nvidia: NvidiaFact, container: ContainerFact) -> Verdict:
    """An NVIDIA device is there but no working driver serves it.

    ## What it checks
    NVIDIA devices in sysfs and /dev, against what NVML answers.

    ## Why it matters
    CUDA cannot start, and torch falls back to the CPU without an error.

    ## Remedy
    Install or restart the driver on the host. In a container, start it with the GPUs and the
    `compute,utility` capabilities.

    ## Source
    NVIDIA Management Library reference; NVIDIA/nvidia-docker#1730.
    """
    if nvidia.num_devices == 0 and nvidia.driver is None:
        return Skipped("no NVIDIA device here")
    if nvidia.driver is not None and not nvidia.error:
        return Ok(f"driver {nvidia.driver}")
    said = nvidia.error or "no driver answers"
    remedy = _REBOOT if nvidia.error_code == 15 else _INSTALL  # noqa: PLR2004  NVML: GPU is lost
    if container.kind:
        remedy = _REMEDIES.get(nvidia.error_code or 0, _RESTART_CONTAINER)
    return Problem(
        culprit="NVIDIA driver",
        owner="user" if remedy is _RESTART_CONTAINER else "admin",
        message=f"{nvidia.num_devices} NVIDIA device(s), but the driver does not work: {said}",
        evidence=(
            Evidence(subject="NVML", expected="success", found=said),
            Evidence(
                subject="kernel module", expected="loaded", found=nvidia.driver or "not loaded"
            ),
        ),
        remedy=remedy,
    )


@check(requires=["torch-not-installed", "no-nvidia-driver"])
def driver_too_old_for_cuda(
    nvidia: NvidiaFact,
    torch_build: TorchBuildFact,
    policy: PolicyFact,
    loader: LoaderFact | None,
) -> Verdict:
    """The NVIDIA driver is older than torch's CUDA build needs.

    ## What it checks
    The driver against the minimum for the CUDA major release of the torch build, and against the
    profile's floor. Within a major release any driver from the minimum on will do. On data-centre
    GPUs a forward-compatibility package (`cuda-compat`) makes an older driver do.

    ## Why it matters
    torch falls back to the CPU with one warning, or fails at the first CUDA call.

    ## Remedy
    Upgrade the driver, or take a torch built for an older CUDA.

    ## Source
    NVIDIA CUDA Compatibility, minor version and forward compatibility; sgl-project/sglang#11395.
    """
    if torch_build.cuda is None or nvidia.driver is None:
        return Skipped("torch is not a CUDA build")
    major = int(torch_build.cuda.partition(".")[0])
    minimum = max(minimum_drivers().get(major), policy.driver_min, key=driver_key)
    if minimum is None:
        return Skipped(f"no minimum driver is recorded for CUDA {torch_build.cuda}")
    if driver_key(nvidia.driver) >= driver_key(minimum):
        return Ok(f"driver {nvidia.driver} serves CUDA {torch_build.cuda} (from {minimum} on)")
    if compat := _forward_compatible(loader, nvidia, minimum):
        return Ok(f"forward compatibility: libcuda {compat} on driver {nvidia.driver}")
    serves = f", which serves CUDA up to {nvidia.cuda}," if nvidia.cuda else ""
    return Problem(
        culprit="NVIDIA driver",
        owner="admin",
        message=f"driver {nvidia.driver}{serves} is older than {minimum}, the lowest for "
        f"CUDA {torch_build.cuda} (torch {torch_build.version})",
        evidence=(
            Evidence(subject="NVIDIA driver", expected=f"{minimum} or later", found=nvidia.driver),
            Evidence(subject="CUDA of torch", found=torch_build.cuda),
        ),
        remedy=Remedy(
            kind="downgrade-wheel-or-upgrade-driver",
            text="Upgrade the driver on the host, or build a profile for an older CUDA.",
            commands=("envdoctor build --profile cu128",) if major > _PROFILE_CUDA else (),
        ),
    )


def _forward_compatible(loader: LoaderFact | None, nvidia: NvidiaFact, minimum: str) -> str:
    """Return the version of a compatibility package's libcuda that makes an old driver do."""
    first = next(iter(loader.drivers), None) if loader else None
    if first is None or "/compat" not in first.path or without_forward_compatibility(nvidia):
        return ""
    found = version_of(first) or ""
    return found if driver_key(found) >= driver_key(minimum) else ""


def driver_key(version: str | None) -> tuple[int, ...]:
    """Return a driver version as numbers; empty for None, which sorts first."""
    return tuple(int(part) for part in re.findall(r"\d+", version or ""))
