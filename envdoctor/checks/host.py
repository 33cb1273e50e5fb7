"""Checks of the machine around the environment."""

from __future__ import annotations

import re

from envdoctor.check import check
from envdoctor.facts import (
    ContainerFact,
    Distribution,
    DistributionsFact,
    HostFact,
    KernelLogFact,
    NvidiaFact,
    VariablesFact,
)
from envdoctor.verdict import Evidence, Ok, Owner, Problem, Remedy, Severity, Skipped, Verdict
from envdoctor.visible_devices import VARIABLE, visible_devices

_SHM_WANTED = 1024**3
_DISK_WANTED = 1024**3
_MIB = 1024**2
_GLIBC_TAG = re.compile(r"manylinux_(\d+)_(\d+)_")
_XID = re.compile(r"NVRM: Xid \(([^)]*)\): (\d+)")
_OFF_THE_BUS = 79
_HARDWARE_XIDS = {
    48: "double-bit memory error",
    64: "a memory row could not be remapped",
    74: "NVLink error",
    _OFF_THE_BUS: "the GPU has fallen off the bus",
    95: "uncontained memory error",
    119: "the GPU's system processor does not answer",
    120: "the GPU's system processor failed",
    140: "unrecovered memory error",
}
"""Errors that need a reset or a reboot. Source: NVIDIA Xid errors catalog, read 2026-11-29."""


@check()
def shared_memory_too_small(
    host: HostFact, nvidia: NvidiaFact, variables: VariablesFact, container: ContainerFact
) -> Verdict:
    """/dev/shm is too small for several processes.

    ## What it checks
    The size of /dev/shm, against 1 GiB, with the number of GPUs that a run can use.

    ## Why it matters
    NCCL and DataLoader workers pass tensors through it; containers get 64 MB by default, and a run
    on several GPUs then stops with "bus error" or "no space left on device". One process on one
    GPU does not need it.

    ## Remedy
    Start the container with `--shm-size=8g` or `--ipc=host`; in Kubernetes mount an `emptyDir` of
    medium `Memory` at /dev/shm.

    ## Source
    NVIDIA/nccl#342; Docker run reference.
    """
    if host.shm_bytes is None:
        return Skipped("/dev/shm could not be read")
    size = f"{host.shm_bytes // _MIB} MiB"
    if host.shm_bytes >= _SHM_WANTED:
        return Ok(f"/dev/shm has {size}")
    num_gpus = len(visible_devices(variables.get(VARIABLE), nvidia.gpus).gpus)
    return Problem(
        culprit="/dev/shm",
        severity=Severity.ERROR if num_gpus > 1 else Severity.INFO,
        owner="image" if container.kind else "admin",
        message=f"/dev/shm has {size}; "
        + (f"NCCL over {num_gpus} GPUs wants" if num_gpus > 1 else "several processes want")
        + " 1 GiB or more",
        evidence=(
            Evidence(subject="/dev/shm", expected=">= 1 GiB", found=f"{host.shm_bytes} bytes"),
            Evidence(subject="GPUs that a run can use", found=str(num_gpus)),
        ),
        remedy=_more_shared_memory(container),
    )


def _more_shared_memory(container: ContainerFact) -> Remedy:
    if container.kind == "kubernetes":
        text = "Mount an emptyDir of medium Memory at /dev/shm in the pod."
        return Remedy(kind="container-option", text=text)
    if container.kind:
        text = "Start the container with --shm-size=8g or --ipc=host."
        return Remedy(kind="container-option", text=text)
    return Remedy(
        kind="config-change",
        text="Make /dev/shm larger.",
        commands=("sudo mount -o remount,size=50% /dev/shm",),
    )


@check()
def disk_almost_full(host: HostFact) -> Verdict:
    """The environment's file system is almost full.

    ## What it checks
    Free space where the environment lies, against 1 GiB.

    ## Why it matters
    Compile caches, checkpoints and installs stop halfway, and a half-written install looks whole.

    ## Remedy
    Free space, or move caches and environments (`ENVDOCTOR_HOME`) to another file system.

    ## Source
    astral-sh/uv#13950.
    """
    if host.disk_free_bytes is None:
        return Skipped("free space could not be read")
    if host.disk_free_bytes >= _DISK_WANTED:
        return Ok(f"{host.disk_free_bytes // 1024**3} GiB free")
    return Problem(
        culprit="disk",
        severity=Severity.WARNING,
        message=f"only {host.disk_free_bytes // _MIB} MiB are free where the environment lies",
        evidence=(
            Evidence(subject="free space", expected=">= 1 GiB", found=str(host.disk_free_bytes)),
        ),
        remedy=Remedy(kind="free-space", text="Free space on that file system."),
    )


@check()
def glibc_too_old(
    host: HostFact, installed: DistributionsFact, container: ContainerFact
) -> Verdict:
    """The C library is older than installed packages need.

    ## What it checks
    glibc's version, against the `manylinux` tags of the installed wheels.

    ## Why it matters
    An environment that was copied from a newer machine, or whose home is shared with one, fails at
    import with "version `GLIBC_2.28' not found".

    ## Remedy
    Use a newer image or host; glibc cannot be upgraded under a system.

    ## Source
    PEP 600: a manylinux_X_Y wheel needs glibc X.Y or later.
    """
    if host.glibc is None:
        return Skipped("glibc's version is unknown")
    needs = [(version, dist) for dist in installed.distributions if (version := _needs(dist))]
    if not needs:
        return Ok(f"glibc {host.glibc}; no wheel says what it needs")
    needed, dist = max(needs, key=lambda pair: pair[0])
    if _version(host.glibc) >= needed:
        return Ok(f"glibc {host.glibc} serves every wheel here")
    text = ".".join(map(str, needed))
    owner: Owner = "image" if container.kind else "admin"
    return Problem(
        culprit="glibc",
        owner=owner,
        message=f"glibc is {host.glibc}; {dist.name} {dist.version} needs {text} or later",
        evidence=(
            Evidence(subject="glibc", expected=f"{text} or later", found=host.glibc),
            Evidence(subject=dist.path, found=" ".join(dist.tags)),
        ),
        remedy=Remedy(
            kind="install-system-package",
            text=f"Use an image or host with glibc {text} or later; do not replace glibc in place.",
        ),
    )


def _needs(dist: Distribution) -> tuple[int, ...]:
    """Return the lowest glibc that one of a wheel's tags accepts; empty if it does not matter."""
    found = [match for tag in dist.tags for match in _GLIBC_TAG.finditer(tag)]
    return min(((int(match[1]), int(match[2])) for match in found), default=())


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


@check()
def gpu_fault_in_kernel_log(nvidia: NvidiaFact, log: KernelLogFact) -> Verdict:
    """The kernel's log tells of a GPU's hardware failure.

    ## What it checks
    NVIDIA's Xid messages since the last boot, for those that a program cannot cause.

    ## Why it matters
    Such a GPU fails again, or is already gone; torch then reports an illegal access or an unknown
    error, and reinstalling packages changes nothing.

    ## Remedy
    Reboot the host or reset the GPU; if it comes back, the GPU has to be replaced.

    ## Source
    NVIDIA Xid errors catalog.
    """
    if not nvidia.num_devices:
        return Skipped("no NVIDIA device here")
    found: dict[tuple[str, int], str] = {}
    for line in log.lines:
        match = _XID.search(line)
        if match and int(match[2]) in _HARDWARE_XIDS:
            found[match[1], int(match[2])] = line
    if not found:
        return Ok(f"{len(log.lines)} telling line(s), no hardware failure among them")
    return tuple(
        Problem(
            culprit=f"GPU at {device}",
            owner="admin",
            severity=_xid_severity(number, nvidia),
            message=f"Xid {number}: {_HARDWARE_XIDS[number]}; torch and its packages are not the "
            "cause",
            evidence=(Evidence(subject="kernel log", found=line.strip()),),
            remedy=Remedy(
                kind="reboot",
                text="Reboot the host, or reset the GPU; if it comes back, replace the GPU.",
                commands=("sudo reboot",),
            ),
        )
        for (device, number), line in found.items()
    )


def _xid_severity(number: int, nvidia: NvidiaFact) -> Severity:
    """A GPU off the bus comes back only with a reboot, which empties the log; others may be past.

    Where NVML fails as well, that is the finding.
    """
    is_gone = number == _OFF_THE_BUS and not nvidia.error
    return Severity.ERROR if is_gone else Severity.WARNING
