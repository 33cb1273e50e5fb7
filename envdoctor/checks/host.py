"""Checks of the machine around the environment."""

from __future__ import annotations

from envdoctor.check import check
from envdoctor.facts import HostFact
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

_SHM_WANTED = 1024**3
_DISK_WANTED = 1024**3


@check()
def shared_memory_too_small(host: HostFact) -> Verdict:
    """/dev/shm is too small for several processes.

    ## What it checks
    The size of /dev/shm, against 1 GiB.

    ## Why it matters
    NCCL and DataLoader workers pass tensors through it; containers get 64 MB by default and then
    stop with "bus error" or "no space left on device". One process on one GPU does not need it.

    ## Remedy
    Start the container with `--shm-size=8g` or `--ipc=host`.

    ## Source
    NVIDIA/nccl#342; Docker run reference.
    """
    if host.shm_bytes is None:
        return Skipped("/dev/shm could not be read")
    if host.shm_bytes >= _SHM_WANTED:
        return Ok(f"/dev/shm has {host.shm_bytes // 1024**2} MiB")
    return Problem(
        culprit="/dev/shm",
        severity=Severity.INFO,
        owner="image",
        message=f"/dev/shm has {host.shm_bytes // 1024**2} MiB; several processes want 1 GiB",
        evidence=(
            Evidence(subject="/dev/shm", expected=">= 1 GiB", found=f"{host.shm_bytes} bytes"),
        ),
        remedy=Remedy(
            kind="container-option", text="Start the container with --shm-size=8g or --ipc=host."
        ),
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
        message=f"only {host.disk_free_bytes // 1024**2} MiB are free where the environment lies",
        evidence=(
            Evidence(subject="free space", expected=">= 1 GiB", found=str(host.disk_free_bytes)),
        ),
        remedy=Remedy(kind="free-space", text="Free space on that file system."),
    )
