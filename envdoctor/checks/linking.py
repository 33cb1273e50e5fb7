"""Checks that compiled packages fit the libraries which they are linked to."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.compatibility import companion_versions, package_of_library
from envdoctor.facts import (
    CompanionBuild,
    CompanionBuildsFact,
    DistributionsFact,
    FoundLibrary,
    HostFact,
    InterpreterFact,
    LoaderFact,
    PolicyFact,
    Unmet,
    VariablesFact,
)
from envdoctor.pins import read_pins
from envdoctor.probes.compiled_modules import TORCH_LIBRARIES
from envdoctor.requirements import marker_environment
from envdoctor.search_path import removal_of
from envdoctor.torch_index import public_version
from envdoctor.verdict import Evidence, Ok, Owner, Problem, Remedy, Verdict

if TYPE_CHECKING:
    from envdoctor.facts import Distribution

_SHOWN = 5
_LIBSTDCXX = "libstdc++.so.6"
_GCC_LIBRARIES = frozenset({_LIBSTDCXX, "libgcc_s.so.1", "libgomp.so.1", "libgfortran.so.5"})
_RUNTIME = "libcudart.so."


@check(requires=["torch-not-installed"])
def libstdcxx_too_old(loader: LoaderFact, variables: VariablesFact) -> Verdict:
    """The C++ runtime that is loaded is older than a compiled package needs.

    ## What it checks
    The version nodes (`GLIBCXX_3.4.34` and others) that torch, Triton and other compiled packages
    need of GCC's runtime libraries, against those that the files which are loaded define.

    ## Why it matters
    The import stops with "version `GLIBCXX_3.4.34' not found". In a conda environment the usual
    cause is a lost link: `libstdc++.so.6.0.34` is there, `libstdc++.so.6` is not, so the system's
    older one is taken.

    ## Remedy
    Conda: reinstall the package of libstdc++, which restores the link. Else take an older one off
    LD_LIBRARY_PATH, or use an image with a newer GCC runtime.

    ## Source
    pytorch/pytorch#157709; GCC manual of libstdc++, "ABI Policy and Guidelines".
    """
    lacking = [item for item in loader.unmet if item.versions and item.name in _GCC_LIBRARIES]
    if not lacking:
        return Ok("the C++ runtime has every version that is needed")
    groups: dict[str, list[Unmet]] = {}
    for item in lacking:
        groups.setdefault(item.provider, []).append(item)
    found = [_too_old(group, loader, variables) for group in groups.values()]
    return problems(found, Ok())


def _too_old(group: list[Unmet], loader: LoaderFact, variables: VariablesFact) -> Problem:
    first = group[0]
    nodes = ", ".join(dict.fromkeys(node for item in group for node in item.versions))
    culprit, owner, remedy = _newer_runtime(first, loader, variables)
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return Problem(
        culprit=culprit,
        owner=owner,
        message=f"{PurePath(first.path).name}{more} ({first.distribution or 'torch'}) needs {nodes}"
        f" of {first.name}; {first.provider}, which is loaded, does not have it",
        evidence=tuple(
            Evidence(subject=item.path, expected=", ".join(item.versions), found=item.provider)
            for item in group[:_SHOWN]
        ),
        remedy=remedy,
    )


def _newer_runtime(
    lacking: Unmet, loader: LoaderFact, variables: VariablesFact
) -> tuple[str, Owner, Remedy]:
    private = next(iter(loader.private_libstdcxx), None)
    taken = next((item.found for item in loader.objects if item.path == lacking.provider), None)
    taken = taken or _on_library_path(lacking, variables)
    if private and lacking.name == _LIBSTDCXX and PurePath(private).name != _LIBSTDCXX:
        return _restore_link(private, loader.conda_libstdcxx)
    if loader.lost_libstdcxx and lacking.name == _LIBSTDCXX:
        return _restore_link(loader.lost_libstdcxx[0], loader.conda_libstdcxx)
    if taken and taken.source in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        removal = removal_of([taken], variables)
        return removal.culprit, removal.owner, removal.remedy
    text = f"Use an image whose {lacking.name} is newer, or a build of the package for this one."
    return lacking.provider, "image", Remedy(kind="install-system-package", text=text)


def _on_library_path(lacking: Unmet, variables: VariablesFact) -> FoundLibrary | None:
    """Return what is taken where torch itself does not load it, if LD_LIBRARY_PATH names it."""
    source = "LD_LIBRARY_PATH"
    folders = {folder.rstrip("/") for folder in (variables.get(source) or "").split(":")}
    if str(PurePath(lacking.provider).parent) not in folders:
        return None
    return FoundLibrary(
        name=lacking.name, path=lacking.provider, via="LD_LIBRARY_PATH", source=source
    )


def _restore_link(private: str, packages: tuple[str, ...]) -> tuple[str, Owner, Remedy]:
    prefix = PurePath(private).parents[1]
    names = " ".join(packages or ("libstdcxx-ng",))
    is_there = PurePath(private).name != _LIBSTDCXX
    told = f"new enough but {_LIBSTDCXX} does not link to it" if is_there else "gone"
    remedy = Remedy(
        kind="reinstall-package",
        text=f"{private} is {told}: reinstall {names}, which restores the link.",
        commands=(f"conda install --prefix {shlex.quote(str(prefix))} --force-reinstall {names}",),
    )
    return f"{prefix}/lib/{_LIBSTDCXX}", "user", remedy


@check(requires=["torch-not-installed", "cpu-torch-on-gpu-machine"])
def extension_for_another_torch(
    loader: LoaderFact,
    companions: CompanionBuildsFact,
    installed: DistributionsFact,
    interpreter: InterpreterFact,
    host: HostFact,
    policy: PolicyFact,
) -> Verdict:
    """A compiled extension was built for another torch.

    ## What it checks
    The symbols of torch that compiled modules need (flash-attn, sgl-kernel and others), against
    those that the installed torch defines; and whether the libraries of torch and CUDA that they
    need are there. Packages whose requirement on torch is broken are left to that check.

    ## Why it matters
    The import stops with "undefined symbol: _ZN3c10...", as when a wheel for the old C++ ABI meets
    a torch with the new one, or with "libcudart.so.12: cannot open shared object file".

    ## Remedy
    Install the wheel that was built for this torch and CUDA, or build it here without isolation.

    ## Source
    Dao-AILab/flash-attention#1644; Dao-AILab/flash-attention#1717.
    """
    lacking = _missing_libraries(loader)
    for item in loader.unmet:
        if item.symbols and not item.name:
            evidence = [
                Evidence(subject=item.path, expected=f"symbol {name}", found="not in this torch")
                for name in item.symbols
            ]
            lacking.setdefault(item.distribution, []).extend(evidence)
    if not lacking:
        return Ok("every compiled extension fits this torch")
    pins = read_pins(installed, marker_environment(interpreter, host))
    explained = {item.name for item in companions.builds if _says_so(item, loader, installed)}
    explained |= {pin.dist.name for pin in pins if pin.name == "torch" and not pin.holds}
    found = [
        _for_another(dist, evidence, installed, policy)
        for name, evidence in lacking.items()
        if name not in explained and (dist := installed.find(name))
    ]
    return problems(found, Ok("what does not fit is named by the checks of its requirements"))


def _says_so(build: CompanionBuild, loader: LoaderFact, installed: DistributionsFact) -> bool:
    """Tell whether a package says itself that it is for another torch, which a check reads."""
    release = public_version(installed.version_of("torch"))
    pair = companion_versions().get(release, {}).get(build.name)
    runtimes = (item.found.name for item in loader.objects if item.found.name.startswith(_RUNTIME))
    major = next(runtimes, "").removeprefix(_RUNTIME)
    is_other_cuda = bool(build.cuda) and build.cuda.partition(".")[0] != major
    return is_other_cuda or (pair is not None and _minor(pair) != _minor(build.version))


def _minor(version: str) -> list[str]:
    return public_version(version).split(".")[:2]


def _missing_libraries(loader: LoaderFact) -> dict[str, list[Evidence]]:
    """Return the libraries of torch and CUDA that extensions need and that are nowhere."""
    found: dict[str, list[Evidence]] = {}
    for item in loader.objects:
        if item.distribution in ("", "torch", "triton"):
            continue
        for name, path in item.needs:
            is_ours = name.startswith(TORCH_LIBRARIES) or package_of_library(name)
            if is_ours and not path and not loader.paths_of(name):
                evidence = Evidence(subject=item.path, expected=name, found="found nowhere")
                found.setdefault(item.distribution, []).append(evidence)
    return found


def _for_another(
    dist: Distribution, evidence: list[Evidence], installed: DistributionsFact, policy: PolicyFact
) -> Problem:
    first = evidence[0]
    torch = installed.version_of("torch")
    wanted = f"{dist.name}=={dist.version.partition('+')[0]}"
    return Problem(
        culprit=dist.name,
        message=f"{dist.name} {dist.version} was built for another torch than {torch}: "
        f"{PurePath(first.subject).name} needs {first.expected}, {first.found}",
        evidence=tuple(evidence[:_SHOWN]),
        remedy=Remedy(
            kind="install-matching-wheel",
            text=f"Install the wheel of {dist.name} for torch {torch}, this CUDA, this Python"
            f"{_abi(evidence)}; or build it here.",
            commands=(f"{policy.pip_install} --no-build-isolation --no-cache-dir {wanted}",),
        ),
    )


def _abi(evidence: list[Evidence]) -> str:
    """Name the C++ ABI that the wheel must have, where the missing symbols tell it.

    Source: GCC manual of libstdc++, "Dual ABI": `std::string` is `Ss` in symbols of the old one.
    """
    names = [item.expected for item in evidence]
    if any("__cxx11" in name for name in names):
        return " and the old C++ ABI (cxx11abiFALSE in its name)"
    if any(name.endswith("Ss") for name in names):
        return " and the new C++ ABI (cxx11abiTRUE in its name)"
    return ""
