"""Checks of the CUDA packages that torch requires."""

from __future__ import annotations

from pathlib import PurePath

from packaging.requirements import Requirement

from envdoctor.check import check, problems
from envdoctor.facts import (
    DistributionFiles,
    DistributionsFact,
    HostFact,
    InterpreterFact,
    PolicyFact,
    RecordsFact,
    SharedObject,
    SharedObjectsFact,
)
from envdoctor.requirements import (
    marker_environment,
    required_cuda_packages,
    satisfies,
    sibling,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

_SHOWN_FILES = 5

Required = dict[str, tuple[Requirement, str]]
"""By normalised name: the requirement and the distribution that states it."""


@check(requires=["torch-not-installed"])
def required_package_missing(
    installed: DistributionsFact, interpreter: InterpreterFact, host: HostFact, policy: PolicyFact
) -> Verdict:
    """A CUDA package that torch requires is not installed.

    ## What it checks
    torch's Requires-Dist, followed through `cuda-toolkit`, against what is installed.

    ## Why it matters
    `import torch` fails in the loader, naming a library but not the package that should bring it.

    ## Remedy
    Install the package at the version that torch pins.

    ## Source
    METADATA of the torch wheels 2.9.1 to 2.15.0, read 2026-11-29.
    """
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    if not required:
        return Ok("torch requires no CUDA package")
    found = [
        Problem(
            culprit=name,
            message=f"{name} is not installed; {parent} requires {_text(requirement)}",
            evidence=(Evidence(subject=name, expected=_text(requirement), found="not installed"),),
            remedy=Remedy(
                kind="install-pinned-version",
                text=f"Install {name} at the required version.",
                commands=(f"{policy.pip_install} {_install_argument(requirement)}",),
            ),
        )
        for name, (requirement, parent) in required.items()
        if installed.find(name) is None
    ]
    return problems(found, Ok(f"all {len(required)} required CUDA packages are installed"))


@check(requires=["torch-not-installed"])
def package_version_not_pinned(
    installed: DistributionsFact,
    records: RecordsFact,
    interpreter: InterpreterFact,
    host: HostFact,
    policy: PolicyFact,
) -> Verdict:
    """A CUDA package has another version than torch pins.

    ## What it checks
    The installed version of each CUDA package that torch requires, against torch's own pin.

    ## Why it matters
    torch was built and tested with exactly these libraries; another cuDNN or Triton fails at run
    time, often only in one operation.

    ## Remedy
    Install the pinned version. If another package wants a different one, the two do not belong in
    one environment.

    ## Source
    METADATA of the torch wheels; coreweave/ml-containers#64.
    """
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    if not required:
        return Ok("torch requires no CUDA package")
    # A placeholder has a wrong version as well; its own check says what it is.
    placeholders = _placeholders(records, required)
    found = [
        _wrong_version(dist.version, requirement, parent, policy)
        for name, (requirement, parent) in required.items()
        if name not in placeholders
        and (dist := installed.find(name))
        and not satisfies(dist.version, requirement)
    ]
    return problems(found, Ok(f"all {len(required)} required CUDA packages are at their pin"))


def _wrong_version(version: str, requirement: Requirement, parent: str, policy: PolicyFact) -> Problem:
    return Problem(
        culprit=requirement.name,
        message=f"{requirement.name} is {version}; {parent} requires {_text(requirement)}",
        evidence=(Evidence(subject=requirement.name, expected=_text(requirement), found=version),),
        remedy=Remedy(
            kind="install-pinned-version",
            text=f"Install the version that {parent} requires.",
            commands=(f"{policy.pip_install} {_install_argument(requirement)}",),
        ),
    )


@check(requires=["torch-not-installed"])
def package_without_libraries(
    installed: DistributionsFact,
    records: RecordsFact,
    interpreter: InterpreterFact,
    host: HostFact,
    policy: PolicyFact,
) -> Verdict:
    """An NVIDIA package that torch requires ships no shared object.

    ## What it checks
    The RECORD of each `nvidia-*` package that torch requires lists at least one shared object.

    ## Why it matters
    Some names on the package index are placeholders of a few kilobytes: installed, satisfied, and
    without the library.

    ## Remedy
    Reinstall the version that torch pins.

    ## Source
    Placeholder releases of nvidia-cudnn-cu12 0.0.1.dev5 and others, listed 2026-11-29.
    """
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    found = [
        Problem(
            culprit=name,
            message=f"{name} {_version(name, installed)} is a placeholder without a library: "
            f"its RECORD lists {num_files} files and no shared object",
            evidence=(
                Evidence(subject=name, expected="at least one .so", found=f"{num_files} files"),
            ),
            remedy=Remedy(
                kind="install-pinned-version",
                text="Install the real package at the version that torch requires.",
                commands=(f"{policy.pip_install} {_install_argument(required[name][0])}",),
            ),
        )
        for name, num_files in _placeholders(records, required).items()
    ]
    return problems(found, Ok("every required NVIDIA package ships shared objects"))


def _placeholders(records: RecordsFact, required: Required) -> dict[str, int]:
    """Return the number of recorded files of each required package that ships no library."""
    return {
        files.name: files.num_files
        for files in records.distributions
        if files.name.startswith("nvidia-")
        and files.name in required
        and not files.num_libraries
        and not files.error
    }


@check()
def package_files_damaged(
    records: RecordsFact,
    objects: SharedObjectsFact,
    installed: DistributionsFact,
    interpreter: InterpreterFact,
    host: HostFact,
    policy: PolicyFact,
) -> Verdict:
    """Installed files are missing or are not what the package installed.

    ## What it checks
    Every file in RECORD of torch, triton and the NVIDIA packages exists with its recorded size, and
    every shared object of the NVIDIA packages is an ELF object for this machine whose SONAME is its
    file name.

    ## Why it matters
    An installer looks at metadata only: with the library gone it still says "already satisfied",
    and `pip check` finds nothing. This is how an installed `nvidia-cudnn-cu12` can hold no cuDNN.

    ## Remedy
    Reinstall the owning package by force. Where a package for another CUDA major wrote the same
    paths, uninstall that one first.

    ## Source
    PyPA "Recording installed projects"; pypa/pip#8579; pytorch/pytorch#188892.
    """
    damage = {files.name: _recorded_damage(files) for files in records.distributions}
    for item in objects.objects:
        seen = {evidence.subject for evidence in damage.get(item.distribution, [])}
        if item.path not in seen and (evidence := _elf_damage(item, host.machine)):
            damage.setdefault(item.distribution, []).append(evidence)
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    found = [
        _damaged(name, evidence, _reinstall(name, installed, required, policy), installed)
        for name, evidence in damage.items()
        if evidence
    ]
    if not found and not records.distributions:
        return Skipped("no package that matters has a RECORD")
    num_files = sum(files.num_files for files in records.distributions)
    return problems(found, Ok(f"{num_files} recorded files are on disk at their size"))


def _recorded_damage(files: DistributionFiles) -> list[Evidence]:
    if files.error:
        return [Evidence(subject="RECORD", expected="a readable list of files", found=files.error)]
    return [
        Evidence(subject=file.path, expected=file.expected, found=file.found)
        for file in files.differing
    ]


def _elf_damage(item: SharedObject, machine: str) -> Evidence | None:
    name = PurePath(item.path).name
    if item.error:
        return Evidence(subject=item.path, expected="an ELF shared object", found=item.error)
    if item.machine != machine:
        return Evidence(subject=item.path, expected=f"code for {machine}", found=item.machine)
    if item.soname and item.soname != name:
        return Evidence(subject=item.path, expected=f"SONAME {name}", found=f"SONAME {item.soname}")
    return None


def _damaged(
    name: str, evidence: list[Evidence], remedy: Remedy, installed: DistributionsFact
) -> Problem:
    first = evidence[0]
    more = f" and {len(evidence) - 1} more" if len(evidence) > 1 else ""
    return Problem(
        culprit=name,
        message=f"{name} {_version(name, installed)} is damaged: {first.subject} is {first.found} "
        f"(expected {first.expected}){more}",
        evidence=tuple(evidence[:_SHOWN_FILES]),
        remedy=remedy,
    )


def _reinstall(
    name: str, installed: DistributionsFact, required: Required, policy: PolicyFact
) -> Remedy:
    """Choose the commands; removing the intruder deletes shared paths, so the owner comes last."""
    other = sibling(name, installed)
    if other is None:
        version = _version(name, installed)
        return Remedy(
            kind="reinstall-package",
            text=f"Reinstall {name} by force; without force it counts as already satisfied.",
            commands=(f"{policy.pip_install} {_index_option(version)}{name}=={version}",),
        )
    keep, drop = (name, other.name) if name in required else (other.name, name)
    return Remedy(
        kind="uninstall-then-reinstall",
        text=f"{keep} and {drop} write the same paths: uninstall {drop}, then reinstall {keep}.",
        commands=(
            f"{policy.pip_uninstall} {drop}",
            f"{policy.pip_install} {keep}=={_version(keep, installed)}",
        ),
    )


def _index_option(version: str) -> str:
    """Return the index option for a version with a local tag, which only that index has."""
    local = version.partition("+")[2]
    return f"--index-url https://download.pytorch.org/whl/{local} " if local else ""


@check()
def package_without_record(installed: DistributionsFact, policy: PolicyFact) -> Verdict:
    """A package's files cannot be checked, because its RECORD is gone.

    ## What it checks
    torch, triton and the NVIDIA packages have a RECORD.

    ## Why it matters
    Without it neither installers nor this tool know which files belong to the package; an
    installation that was interrupted looks like this.

    ## Remedy
    Reinstall the package by force.

    ## Source
    PyPA "Recording installed projects"; astral-sh/uv#2304.
    """
    found = [
        Problem(
            culprit=dist.name,
            severity=Severity.WARNING,
            message=f"{dist.name} {dist.version} has no RECORD: its files were not checked",
            evidence=(Evidence(subject=f"{dist.path}/RECORD", expected="a file", found="missing"),),
            remedy=Remedy(
                kind="reinstall-package",
                text=f"Reinstall {dist.name} by force.",
                commands=(f"{policy.pip_install} {dist.name}=={dist.version}",),
            ),
        )
        for dist in installed.distributions
        if not dist.has_record
        and dist.installer != "conda"
        and (dist.name in {"torch", "triton"} or dist.name.startswith("nvidia-"))
    ]
    return problems(found, Ok("every package that matters has a RECORD"))


def _version(name: str, installed: DistributionsFact) -> str:
    dist = installed.find(name)
    return dist.version if dist else ""


def _text(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"


def _install_argument(requirement: Requirement) -> str:
    text = _text(requirement)
    return f"'{text}'" if any(sign in text for sign in "<>!~*") else text
