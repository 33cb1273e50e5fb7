"""Checks of what compile caches hold."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.facts import (
    CacheEntry,
    CacheFolder,
    CachesFact,
    DistributionsFact,
    NvidiaFact,
)
from envdoctor.torch_index import public_version
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN = 5
_STOPPING = frozenset({".json", ".so", ".cubin", ".hsaco"})
"""Files that stop a run if they are damaged; a damaged pickle is compiled anew."""


@check()
def stale_compile_cache(
    caches: CachesFact, installed: DistributionsFact, nvidia: NvidiaFact
) -> Verdict:
    """A Triton cache holds kernels of another Triton or for another GPU.

    ## What it checks
    Some entries of Triton's cache, evenly spread: the Triton version and GPU architecture in their
    metadata, against what is installed and present. Entries that are newer than the installed
    Triton belong to another environment or machine that shares the folder, and are left alone.

    ## Why it matters
    Triton's key should keep them apart; where it does not, kernels of the old version run and give
    wrong numbers without an error.

    ## Remedy
    Remove those entries; they are compiled anew. Better: one cache folder for each environment.

    ## Source
    vllm-project/vllm#41871.
    """
    triton = public_version(installed.version_of("triton"))
    archs = {int(gpu.capability.replace(".", "")) for gpu in nvidia.gpus if gpu.capability}
    found = [
        _stale(folder, stale, triton, archs)
        for folder in caches.folders
        if folder.kind == "triton"
        and (stale := list(_stale_entries(folder, caches, triton, archs)))
    ]
    return problems(found, Ok("the entries that were read are of this Triton and these GPUs"))


def _stale_entries(
    folder: CacheFolder, caches: CachesFact, triton: str, archs: set[int]
) -> Iterator[CacheEntry]:
    if caches.triton_installed is None:
        return
    for entry in folder.entries:
        other_version = triton and entry.triton and public_version(entry.triton) != triton
        other_arch = archs and entry.arch is not None and entry.arch not in archs
        is_older = entry.modified < caches.triton_installed
        if not entry.error and is_older and (other_version or other_arch):
            yield entry


def _stale(folder: CacheFolder, stale: list[CacheEntry], triton: str, archs: set[int]) -> Problem:
    versions = ", ".join(sorted({entry.triton for entry in stale if entry.triton}))
    targets = ", ".join(sorted({f"sm_{entry.arch}" for entry in stale if entry.arch is not None}))
    here = ", ".join(f"sm_{arch}" for arch in sorted(archs)) or "no GPU"
    whole = len(stale) == len(folder.entries)
    paths = [folder.path] if whole else [entry.path for entry in stale]
    variable = f" ({folder.variable})" if folder.variable else ""
    return Problem(
        culprit=folder.path,
        severity=Severity.WARNING,
        message=f"triton cache {folder.path}{variable}: {len(stale)} of {len(folder.entries)} "
        f"entries read are of triton {versions or 'unknown'} for {targets or 'unknown'}, older "
        f"than the installed triton {triton}; here is {here}",
        evidence=tuple(
            Evidence(
                subject=entry.path,
                expected=f"triton {triton} for {here}",
                found=f"triton {entry.triton} for sm_{entry.arch}",
            )
            for entry in stale[:_SHOWN]
        ),
        remedy=Remedy(
            kind="clear-cache",
            text="Remove them; kernels are compiled anew when they are needed.",
            commands=tuple(f"rm -r {shlex.quote(path)}" for path in paths),
        ),
    )


@check()
def damaged_cache_entry(caches: CachesFact) -> Verdict:
    """A compile cache holds a damaged entry.

    ## What it checks
    Some entries of each cache: Triton's metadata is JSON and its kernels have at least a header;
    Inductor's pickles have the content that their names say, and its shared objects are whole and
    for this machine. Nothing is unpickled or loaded.

    ## Why it matters
    A cut metadata file or shared object stops the run at load ("file too short", JSONDecodeError)
    each time until it is removed; a damaged pickle is compiled anew with a warning.

    ## Remedy
    Remove the entry.

    ## Source
    Measured with torch 2.13.0 and 2.15.0, 2026-11-29; pytorch/pytorch#173679.
    """
    found = [
        _damaged(folder, damaged, caches.triton_installed)
        for folder in caches.folders
        if (damaged := [entry for entry in folder.entries if entry.error])
    ]
    return problems(found, Ok("the entries that were read are whole"))


def _damaged(folder: CacheFolder, damaged: list[CacheEntry], installed: int | None) -> Problem:
    # A pickle is compiled anew, and nobody asks for entries of an older Triton.
    stops = [
        entry
        for entry in damaged
        if PurePath(entry.path).suffix in _STOPPING and entry.modified >= (installed or 0)
    ]
    first = (stops or damaged)[0]
    more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
    paths = dict.fromkeys(
        str(PurePath(entry.path).parent) if folder.kind == "triton" else entry.path
        for entry in damaged
    )
    return Problem(
        culprit=first.path,
        severity=Severity.ERROR if stops else Severity.WARNING,
        message=f"{folder.kind} cache {folder.path} holds a damaged entry: "
        f"{first.path}: {first.error}{more}",
        evidence=tuple(
            Evidence(subject=entry.path, expected="a whole entry", found=entry.error)
            for entry in damaged[:_SHOWN]
        ),
        remedy=Remedy(
            kind="clear-cache",
            text="Remove the damaged entries; they are compiled anew.",
            commands=tuple(f"rm -r {shlex.quote(path)}" for path in paths),
        ),
    )
