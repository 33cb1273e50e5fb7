"""Checks that every library which torch needs is found by the loader."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.compatibility import package_of_library
from envdoctor.facts import (
    DistributionsFact,
    HostFact,
    InterpreterFact,
    LoaderFact,
    PolicyFact,
    RecordsFact,
    TorchBuildFact,
)
from envdoctor.probes.compiled_modules import TORCH_LIBRARIES
from envdoctor.requirements import (
    library_stem,
    marker_environment,
    required_cuda_packages,
)
from envdoctor.verdict import Evidence, Ok, Owner, Problem, Remedy, Skipped, Verdict

if TYPE_CHECKING:
    from envdoctor.facts import Distribution

_SHOWN = 5
_DRIVER = ("libcuda.so", "libnvidia-")
"""Libraries of the driver, which no package brings; checks of their own look at them."""

_TORCH = frozenset({"", "torch", "triton"})


@check(requires=["torch-not-installed"])
def lib_lib64_split(loader: LoaderFact, torch_build: TorchBuildFact) -> Verdict:
    """Torch and the NVIDIA packages lie in different folders, so torch cannot find them.

    ## What it checks
    Libraries that the loader finds nowhere although the environment ships them, in another package
    folder than torch's.

    ## Why it matters
    torch finds the NVIDIA libraries by paths relative to its own files (`$ORIGIN/../../nvidia`).
    Where `lib` and `lib64` are two folders, installers put compiled packages into one and pure ones
    into the other, and those paths lead to nothing. Reinstalling a package changes nothing.

    ## Remedy
    Make the environment anew, so that `lib64` is a link to `lib` (as `uv venv` and
    `python -m venv` do).

    ## Source
    pytorch/pytorch#165812; pytorch/pytorch#104259.
    """
    home = str(PurePath(torch_build.path or "").parent)
    missing = loader.missing()
    split = {name: path for name in missing if (path := _elsewhere(name, home, loader))}
    if not split:
        return Ok("what the environment ships is where torch looks")
    name, path = next(iter(split.items()))
    other = path.partition("/nvidia/")[0]
    more = f" and {len(split) - 1} more" if len(split) > 1 else ""
    return Problem(
        culprit=f"{other}/nvidia",
        message=f"torch lies in {home} and the NVIDIA packages in {other}: torch looks for "
        f"{name}{more} beside itself and finds nothing; the packages themselves are whole",
        evidence=tuple(
            Evidence(
                subject=item, expected=f"below {home}/nvidia, for {missing[item][0]}", found=at
            )
            for item, at in list(split.items())[:_SHOWN]
        ),
        remedy=Remedy(
            kind="recreate-venv",
            text="Make the environment anew with one package folder (`uv venv` and `python -m "
            "venv` make lib64 a link to lib), and install all into it. A stopgap is a link "
            f"{home}/nvidia to {other}/nvidia.",
        ),
    )


def _elsewhere(name: str, home: str, loader: LoaderFact) -> str:
    """Return where the environment ships a library if only outside of torch's package folder."""
    paths = loader.paths_of(name)
    is_beside = any(path.startswith(f"{home}/") for path in paths)
    return paths[0] if paths and not is_beside else ""


@check(requires=["torch-not-installed", "lib-lib64-split"])
def needed_library_not_found(
    loader: LoaderFact,
    records: RecordsFact,
    installed: DistributionsFact,
    interpreter: InterpreterFact,
    host: HostFact,
    policy: PolicyFact,
) -> Verdict:
    """A library that torch needs is found nowhere.

    ## What it checks
    Every library that torch's own need, directly or not, as the loader looks for it: RPATH,
    LD_LIBRARY_PATH, RUNPATH, the loader's cache, its default folders. What a damaged or absent
    package explains is left to the check of that package.

    ## Why it matters
    `import torch` stops with "cannot open shared object file", or a function does so when it is
    used first.

    ## Remedy
    Reinstall the package that ships the library; a library of the system comes with a system
    package.

    ## Source
    ld.so(8); readelf -d of the torch wheels 2.10.0 to 2.13.0, read 2026-11-29.
    """
    if not loader.objects:
        return Skipped("no library of torch could be read")
    missing = _missing(loader)
    if not missing:
        return Ok(f"{len(loader.objects)} objects are loaded, with all they need")
    explained = _explained_packages(records, installed, interpreter, host)
    damaged = {
        PurePath(file.path).name for item in records.distributions for file in item.differing
    }
    found = [
        _not_found(name, askers, installed, policy)
        for name, askers in missing.items()
        if name not in damaged and package_of_library(name) not in explained
    ]
    return problems(found, Ok("what is missing is named by the checks of its packages"))


def _missing(loader: LoaderFact) -> dict[str, list[str]]:
    """Return what torch misses, without the driver's libraries.

    A file that is there but was made for another machine is its package's damage. Of a root without
    a C library the system's libraries are not there to be judged.
    """
    everything = loader.missing()
    is_partial = "libc.so.6" in everything
    of_torch = {item.path for item in loader.objects if item.distribution in _TORCH}
    found: dict[str, list[str]] = {}
    for name, askers in everything.items():
        asking = [path for path in askers if path in of_torch]
        is_ours = bool(package_of_library(name)) or name.startswith(TORCH_LIBRARIES)
        is_misfit = any(path in loader.passed_over for path in loader.paths_of(name))
        if name.startswith(_DRIVER) or is_misfit:
            continue
        if asking and (is_ours or not is_partial):
            found[name] = asking
    return found


def _explained_packages(
    records: RecordsFact, installed: DistributionsFact, interpreter: InterpreterFact, host: HostFact
) -> set[str]:
    """Return the packages, without CUDA suffix, that are absent, gutted or of a wrong version."""
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    gutted = {
        item.name for item in records.distributions if item.differing or not item.num_libraries
    }
    wrong = {
        name
        for name, (requirement, _) in required.items()
        if not (dist := installed.find(name)) or not requirement.is_met_by(dist.version)
    }
    return {library_stem(name) for name in wrong | gutted if name.startswith("nvidia-")}


def _not_found(
    name: str, askers: list[str], installed: DistributionsFact, policy: PolicyFact
) -> Problem:
    owners = _owners(name, installed)
    dist = next(iter(owners), None)
    owner: Owner = "user"
    if dist is not None:
        remedy = Remedy(
            kind="reinstall-package",
            text=f"Reinstall {dist.name} by force; without force it counts as already satisfied.",
            commands=(f"{policy.pip_install} {dist.name}=={dist.version}",),
        )
    elif package := package_of_library(name):
        remedy = Remedy(
            kind="reinstall-package",
            text=f"Install the {package} package of torch's CUDA release.",
        )
    else:
        owner = "image"
        remedy = Remedy(
            kind="install-system-package",
            text=f"Install the system package that brings {name}.",
        )
    more = f" and {len(askers) - 1} more" if len(askers) > 1 else ""
    return Problem(
        culprit=name,
        owner=owner,
        message=f"{name} is found nowhere; {askers[0]}{more} cannot be loaded without it",
        evidence=tuple(
            Evidence(subject=path, expected=f"{name} on the loader's path", found="nowhere")
            for path in askers[:_SHOWN]
        ),
        remedy=remedy,
    )


def _owners(name: str, installed: DistributionsFact) -> list[Distribution]:
    if name.startswith(TORCH_LIBRARIES):
        return [dist for dist in installed.distributions if dist.name == "torch"]
    stem = package_of_library(name)
    return [dist for dist in installed.distributions if stem and library_stem(dist.name) == stem]
