"""Checks of the file systems that compiled code and temporary files go to."""

from __future__ import annotations

import shlex

from envdoctor.check import check, problems
from envdoctor.facts import (
    CacheFolder,
    CachesFact,
    DistributionsFact,
    Mount,
    NvidiaFact,
    StorageFact,
    UserFact,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict

_VARIABLES = {"triton": "TRITON_CACHE_DIR", "inductor": "TORCHINDUCTOR_CACHE_DIR"}
_SPACE_WANTED = 256 * 1024**2
"""Bytes; one compiled model takes some tens of megabytes."""


@check()
def cache_folder_not_executable(
    caches: CachesFact,
    storage: StorageFact,
    installed: DistributionsFact,
    nvidia: NvidiaFact,
    user: UserFact,
) -> Verdict:
    """A compile cache lies on a file system from which nothing may be executed.

    ## What it checks
    The mount options of the folders that Triton and Inductor keep compiled kernels in.

    ## Why it matters
    Both compile shared objects there and load them. From a file system mounted with `noexec` (a
    hardened /tmp, say) that fails with "failed to map segment from shared object".

    ## Remedy
    Point TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR at a folder on another file system.

    ## Source
    mount(8), noexec; torch/_inductor/codecache.py and triton/runtime/build.py.
    """
    used = ("inductor", "triton") if installed.find("triton") else ("inductor",)
    found = [
        _barred(folder, mount, nvidia, user)
        for folder in caches.folders
        if folder.kind in used
        and (mount := storage.mount_of(folder.path))
        and "noexec" in mount.options.split(",")
    ]
    return problems(found, Ok("compiled code may be loaded from every compile cache"))


def _barred(folder: CacheFolder, mount: Mount, nvidia: NvidiaFact, user: UserFact) -> Problem:
    variable = _VARIABLES[folder.kind]
    other = f"{user.home or '/var/tmp'}/.cache/torch-compile/{folder.kind}"
    return Problem(
        culprit=folder.variable or mount.path,
        severity=Severity.ERROR if nvidia.gpus else Severity.WARNING,
        message=f"{folder.path} lies on {mount.path}, which is mounted noexec: what "
        f"{folder.kind} compiles there cannot be loaded",
        evidence=(Evidence(subject=mount.path, expected="exec", found=mount.options),),
        remedy=Remedy(
            kind="set-env",
            text="Point the cache at a folder on another file system.",
            commands=(f"export {variable}={shlex.quote(other)}",),
        ),
    )


@check()
def temporary_folder_full(storage: StorageFact) -> Verdict:
    """There is hardly any space for temporary files.

    ## What it checks
    Free space in the folder for temporary files (TMPDIR, else /tmp), against 256 MiB.

    ## Why it matters
    Compilers and Inductor's cache write there: torch.compile stops with "No space left on device",
    or a half-written cache entry stops later runs.

    ## Remedy
    Free space there, or point TMPDIR at another file system.

    ## Source
    torch/_inductor/runtime/cache_dir_utils.py; tempfile.gettempdir.
    """
    found = [
        Problem(
            culprit=folder,
            severity=Severity.WARNING,
            message=f"only {free // 1024**2} MiB are free in {folder}, where compilers write",
            evidence=(Evidence(subject=folder, expected=">= 256 MiB", found=f"{free} bytes"),),
            remedy=Remedy(
                kind="free-space",
                text="Free space there, or point TMPDIR and TORCHINDUCTOR_CACHE_DIR elsewhere.",
            ),
        )
        for folder, free in storage.free
        if free < _SPACE_WANTED
    ]
    return problems(found, Ok("there is space for temporary files"))
