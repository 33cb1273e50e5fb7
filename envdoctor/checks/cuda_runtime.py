"""Check that packages which look for the CUDA runtime by name find one, and only one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.check import check
from envdoctor.compatibility import package_of_library
from envdoctor.facts import (
    DistributionsFact,
    FoundLibrary,
    LoaderFact,
    PolicyFact,
    TorchBuildFact,
    VariablesFact,
)
from envdoctor.requirements import library_stem, name_of
from envdoctor.search_path import removal_of
from envdoctor.verdict import Evidence, Ok, Owner, Problem, Remedy, Skipped, Verdict

if TYPE_CHECKING:
    from envdoctor.facts import Distribution

_RUNTIME_NAME = "CUDNN_FRONTEND_CUDART_LIB_NAME"
_RUNTIME_USERS = frozenset(
    {
        "nvidia-cudnn-frontend",
        "flashinfer-python",
        "transformer-engine",
        "transformer-engine-cu12",
        "transformer-engine-cu13",
        "transformer-engine-torch",
    }
)
"""Packages with cuDNN's frontend inside, by normalised name."""


@check(requires=["torch-not-installed"])
def two_cuda_runtimes(
    loader: LoaderFact,
    torch_build: TorchBuildFact,
    installed: DistributionsFact,
    variables: VariablesFact,
    policy: PolicyFact,
) -> Verdict:
    """CUDA runtimes of two majors can be found, and a package refuses to choose.

    ## What it checks
    Whether searches for `libcudart.so.12` and `libcudart.so.13` both find a file, where a package
    with cuDNN's frontend is installed. Without one a second runtime does no harm.

    ## Why it matters
    The frontend stops with "Multiple libcudart libraries found": FP8 and attention kernels of
    flashinfer and Transformer Engine do not run.

    ## Remedy
    Uninstall the runtime that torch does not use, or take it off the loader's path.
    CUDNN_FRONTEND_CUDART_LIB_NAME names the one to take, as a stopgap.

    ## Source
    NVIDIA/cudnn-frontend#211, NVIDIA/cudnn-frontend#270.
    """
    users = sorted(_RUNTIME_USERS & {dist.name for dist in installed.distributions})
    if not users or not torch_build.cuda:
        return Skipped("no package here asks for one CUDA runtime among several")
    if name := variables.get(_RUNTIME_NAME):
        return Ok(f"{_RUNTIME_NAME} names {name}")
    major = torch_build.cuda.partition(".")[0]
    others = [item for item in loader.runtimes if not item.name.endswith(f".{major}")]
    if not others or len(loader.runtimes) == len(others):
        return Ok("one CUDA runtime can be found")
    other = others[0]
    culprit, owner, remedy = _remove_runtime(other, loader, installed, variables, policy)
    return Problem(
        culprit=culprit,
        owner=owner,
        message=f"{other.name} ({other.path}) can be found beside torch's libcudart.so.{major}: "
        f"{users[0]} refuses to choose between two CUDA runtimes",
        evidence=tuple(
            Evidence(
                subject=item.name,
                expected=f"only libcudart.so.{major}",
                found=f"{item.path} ({item.source or item.via})",
            )
            for item in loader.runtimes
        ),
        remedy=remedy,
    )


def _remove_runtime(
    other: FoundLibrary,
    loader: LoaderFact,
    installed: DistributionsFact,
    variables: VariablesFact,
    policy: PolicyFact,
) -> tuple[str, Owner, Remedy]:
    removal = removal_of([other], variables)
    dist = _runtime_package(other, installed) if other.path in loader.paths_of(other.name) else None
    if dist is None or _is_required(dist, installed):
        return removal.culprit, removal.owner, removal.remedy
    remedy = Remedy(
        kind="uninstall-package",
        text=f"Uninstall {dist.name}, which nothing here requires, and take its folder off "
        "LD_LIBRARY_PATH.",
        commands=(f"{policy.pip_uninstall} {dist.name}",),
    )
    return dist.name, "user", remedy


def _runtime_package(other: FoundLibrary, installed: DistributionsFact) -> Distribution | None:
    major = other.name.rpartition(".")[2]
    for dist in installed.distributions:
        if library_stem(dist.name) == package_of_library(other.name) and (
            dist.version.partition(".")[0] == major
        ):
            return dist
    return None


def _is_required(dist: Distribution, installed: DistributionsFact) -> bool:
    return any(
        name_of(line) == dist.name for other in installed.distributions for line in other.requires
    )
