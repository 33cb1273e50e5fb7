"""Checks of installed files against what their packages recorded."""

from __future__ import annotations

from pathlib import PurePath

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
    RequiredPackages,
    marker_environment,
    required_cuda_packages,
    sibling,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

_SHOWN_FILES = 5


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
        message=f"{name} {installed.version_of(name)} is damaged: {first.subject} is {first.found} "
        f"(expected {first.expected}){more}",
        evidence=tuple(evidence[:_SHOWN_FILES]),
        remedy=remedy,
    )


def _reinstall(
    name: str, installed: DistributionsFact, required: RequiredPackages, policy: PolicyFact
) -> Remedy:
    """Choose the commands; removing the intruder deletes shared paths, so the owner comes last."""
    other = sibling(name, installed)
    if other is None:
        version = installed.version_of(name)
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
            f"{policy.pip_install} {keep}=={installed.version_of(keep)}",
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
        and dist is installed.find(dist.name)  # a leftover beside it is another check's matter
        and dist.installer != "conda"
        and (dist.name in {"torch", "triton"} or dist.name.startswith("nvidia-"))
    ]
    return problems(found, Ok("every package that matters has a RECORD"))
