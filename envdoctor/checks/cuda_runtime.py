"""Check that packages which look for the CUDA runtime by name find one, and only one."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from envdoctor.check import check
from envdoctor.compatibility import cuda_runtime_users, package_of_library
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
from envdoctor.verdict import Evidence, Ok, Owner, Problem, Remedy, Severity, Skipped, Verdict

if TYPE_CHECKING:
    from envdoctor.facts import Distribution

_RUNTIME_NAME = "CUDNN_FRONTEND_CUDART_LIB_NAME"


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
    with cuDNN's frontend is installed or the second file is of a package that nothing requires. A
    second runtime of the system alone does no harm.

    ## Why it matters
    The frontend stops with "Multiple libcudart libraries found": FP8 and attention kernels of
    flashinfer and Transformer Engine do not run. From 1.25 on it warns and takes one of them.

    ## Remedy
    Uninstall the runtime that torch does not use, or take it off the loader's path.
    CUDNN_FRONTEND_CUDART_LIB_NAME names the one to take, as a stopgap (from 1.25 on).

    ## Source
    NVIDIA/cudnn-frontend#211, NVIDIA/cudnn-frontend#270.
    """
    if not torch_build.cuda:
        return Skipped("torch is not a CUDA build")
    if name := variables.get(_RUNTIME_NAME):
        return Ok(f"{_RUNTIME_NAME} names {name}")
    major = torch_build.cuda.partition(".")[0]
    others = [item for item in loader.runtimes if not item.name.endswith(f".{major}")]
    if not others or len(loader.runtimes) == len(others):
        return Ok("one CUDA runtime can be found")
    orphan = _orphan(others[0], loader, installed)
    severity, does = _effect(installed, orphan)
    if severity is None:
        return Skipped("no package here asks for one CUDA runtime among several")
    culprit, owner, remedy = _removal(others[0], orphan, variables, policy)
    return Problem(
        culprit=culprit,
        severity=severity,
        owner=owner,
        message=f"{others[0].name} ({others[0].path}) can be found beside torch's "
        f"libcudart.so.{major}: {does}",
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


def _effect(
    installed: DistributionsFact, orphan: Distribution | None
) -> tuple[Severity | None, str]:
    """Tell how bad a second runtime is, and why; None if it does no harm."""
    for name, stops_before in cuda_runtime_users().items():
        for dist in installed.distributions:
            if not fnmatchcase(dist.name, name):
                continue
            if not stops_before:
                return Severity.WARNING, f"{dist.name} {dist.version} may refuse to choose"
            if _key(dist.version) < _key(stops_before):
                return Severity.ERROR, f"{dist.name} {dist.version} refuses to choose"
            severity = Severity.WARNING if orphan else Severity.INFO
            return severity, f"{dist.name} {dist.version} warns and takes one of them"
    if orphan:
        return (
            Severity.WARNING,
            f"nothing requires {orphan.name}, yet it may be taken",
        )
    return None, ""


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _removal(
    other: FoundLibrary,
    orphan: Distribution | None,
    variables: VariablesFact,
    policy: PolicyFact,
) -> tuple[str, Owner, Remedy]:
    removal = removal_of([other], variables)
    if orphan is None:
        return removal.culprit, removal.owner, removal.remedy
    remedy = Remedy(
        kind="uninstall-package",
        text=f"Uninstall {orphan.name}, which nothing here requires, and take its folder off the "
        "loader's path.",
        commands=(f"{policy.pip_uninstall} {orphan.name}", *removal.remedy.commands),
    )
    return orphan.name, "user", remedy


def _orphan(
    other: FoundLibrary, loader: LoaderFact, installed: DistributionsFact
) -> Distribution | None:
    """Return the package of the environment that ships a runtime, if nothing requires it."""
    if other.path not in loader.paths_of(other.name):
        return None
    major = other.name.rpartition(".")[2]
    package = package_of_library(other.name)
    required = {name_of(line) for dist in installed.distributions for line in dist.requires}
    for dist in installed.distributions:
        is_it = library_stem(dist.name) == package and dist.version.partition(".")[0] == major
        if is_it and dist.name not in required:
            return dist
    return None
