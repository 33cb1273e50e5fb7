"""Checks of installed files against what their packages recorded."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.checks.abi import is_for_another_machine
from envdoctor.collisions import Collision, find_collisions
from envdoctor.facts import (
    DifferingFile,
    DistributionFiles,
    DistributionsFact,
    HostFact,
    InterpreterFact,
    PolicyFact,
    RecordsFact,
    SharedObject,
    SharedObjectsFact,
)
from envdoctor.probes.installed_files import OTHER_ABI
from envdoctor.probes.record import is_library, matters
from envdoctor.reinstalls import reinstall
from envdoctor.requirements import (
    library_stem,
    marker_environment,
    required_cuda_packages,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Skipped, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN_FILES = 5
_TWINS = frozenset({"nvidia-cudnn", "nvidia-cusparselt", "nvidia-nccl", "nvidia-nvshmem"})
"""Packages whose builds for CUDA 12 and 13 write the same paths."""


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
    Every file in RECORD of torch, Triton and the NVIDIA packages (with `--all` of every package)
    exists with its recorded size; programs such as `ptxas` may be run; every shared object is an
    ELF object for this machine under its own SONAME. `--deep` compares the sha256 of every file.

    ## Why it matters
    An installer looks at metadata only: with the library gone it still says "already satisfied",
    and `pip check` finds nothing. This is how an installed `nvidia-cudnn-cu12` can hold no cuDNN.

    ## Remedy
    Reinstall the owning package by force.

    ## Source
    PyPA "Recording installed projects"; pypa/pip#8579; sgl-project/sglang#31035.
    """
    if not records.distributions:
        return Skipped("no package that matters has a RECORD")
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    collisions = find_collisions(records, installed, required)
    damage = _Damage(objects, host.machine, collisions, installed)
    pairs = [(files, evidence) for files in records.distributions if (evidence := damage.of(files))]
    lost = [pair for pair in pairs if _num_lost(pair[1])]
    found = [_lost_together(lost, installed, policy)] if len(lost) > 1 else []
    found += [
        _damaged(files, evidence, installed, policy)
        for files, evidence in pairs
        if not found or not _num_lost(evidence)
    ]
    return problems(found, Ok(_intact(records)))


def _intact(records: RecordsFact) -> str:
    num_files = sum(files.num_files for files in records.distributions)
    hashed = f", {records.num_hashed} with their recorded hash"
    return f"{num_files} recorded files are on disk at their size{hashed}"


class _Damage:
    """Tells what is wrong with each package's files; a path that several own is told once.

    Args:
        objects: Headers of shared objects.
        machine: What their code has to be for; empty if it is unknown.
        collisions: Packages that overwrote each other, of which another check tells.
        installed: Packages; of those that were built for another machine another check tells.
    """

    def __init__(
        self,
        objects: SharedObjectsFact,
        machine: str,
        collisions: Sequence[Collision],
        installed: DistributionsFact,
    ) -> None:
        foreign = {
            dist.name
            for dist in installed.distributions
            if is_for_another_machine(dist.tags, machine)
        }
        self._broken = {
            item.path: (item.distribution, evidence)
            for item in objects.objects
            if (evidence := _broken(item, "" if item.distribution in foreign else machine))
        }
        self._dropped = {collision.drop for collision in collisions}
        self._colliding = {name for item in collisions for name in item.shared.owners}
        self._told: set[str] = set()

    def of(self, files: DistributionFiles) -> list[Evidence]:
        """Return the damage of one package, shared objects first."""
        if files.name in self._dropped:
            return []
        if files.error:
            expected = "a readable list of files"
            return [Evidence(subject=f"{files.path}/RECORD", expected=expected, found=files.error)]
        found = [
            self._evidence(file)
            for file in files.differing
            if file.path not in self._told and not self._is_told_elsewhere(files, file)
        ]
        listed = {file.path for file in files.differing}
        found += [
            evidence
            for path, (owner, evidence) in self._broken.items()
            if owner == files.name and path not in listed and path not in self._told
        ]
        self._told.update(evidence.subject for evidence in found)
        return sorted(found, key=lambda evidence: not is_library(evidence.subject))

    def _is_told_elsewhere(self, files: DistributionFiles, file: DifferingFile) -> bool:
        if files.name in self._colliding and not self._colliding.isdisjoint(file.others):
            return True
        # `package-for-another-python` looks at modules in the package folder and one level below.
        depth = file.path.count("/") - files.path.count("/")
        return OTHER_ABI in file.found and depth <= 1

    def _evidence(self, file: DifferingFile) -> Evidence:
        _, broken = self._broken.get(file.path, ("", None))
        reason = f", {broken.found}" if broken and file.found.endswith(" bytes") else ""
        return Evidence(subject=file.path, expected=file.expected, found=f"{file.found}{reason}")


def _broken(item: SharedObject, machine: str) -> Evidence | None:
    """Return why the loader would not take a shared object under its name; None if it would."""
    name = PurePath(item.path).name
    if item.error:
        return Evidence(subject=item.path, expected="an ELF shared object", found=item.error)
    if machine and item.machine != machine:
        found = f"code for {item.machine}"
        return Evidence(subject=item.path, expected=f"code for {machine}", found=found)
    if not matters(item.distribution):
        return None  # others name their libraries as they like
    # `libcupti.so` may be a copy of `libcupti.so.12`: only what both names state has to agree.
    stem, _, release = name.partition(".so")
    own_stem, _, own_release = item.soname.partition(".so")
    is_other = release and own_release and item.distribution.startswith("nvidia-")
    if item.soname and (stem != own_stem or (is_other and release != own_release)):
        found = f"SONAME {item.soname}"
        return Evidence(subject=item.path, expected=f"SONAME {name}", found=found)
    return None


def _num_lost(evidence: Sequence[Evidence]) -> int:
    return sum(is_library(item.subject) and "missing" in item.found for item in evidence)


def _lost_together(
    lost: Sequence[tuple[DistributionFiles, list[Evidence]]],
    installed: DistributionsFact,
    policy: PolicyFact,
) -> Problem:
    """Tell of all packages that lost libraries at once: one deed took them, one command helps."""
    pairs = [
        (files.name, files.original_version or _installed_version(files, installed))
        for files, _ in lost
    ]
    names = ", ".join(name for name, _ in pairs)
    told = f"{len(lost)} packages have lost shared objects: {names}"
    if any(library_stem(name) in _TWINS for name, _ in pairs):
        told += "; uninstalling builds for another CUDA does this, both write the same paths"
    command = reinstall(policy, pairs)
    return Problem(
        culprit=names,
        message=told,
        evidence=tuple(evidence[0] for _, evidence in lost),
        remedy=Remedy(
            kind="reinstall-package",
            text="Reinstall them by force; without force they count as already satisfied.",
            commands=(command,) if command else (),
        ),
    )


def _damaged(
    files: DistributionFiles,
    evidence: list[Evidence],
    installed: DistributionsFact,
    policy: PolicyFact,
) -> Problem:
    version = files.original_version or _installed_version(files, installed)
    first = evidence[0]
    more = f" and {num - 1} more" if (num := max(len(evidence), files.num_differing)) > 1 else ""
    told = f"{first.subject} is {first.found} (expected {first.expected}){more}"
    lost = _num_lost(evidence)
    if lost > 1 and lost == files.num_libraries:
        told = f"all its {lost} shared objects are missing, {first.subject} first{more}"
    if lost and library_stem(files.name) in _TWINS:
        told += "; uninstalling its build for another CUDA does this, both write these paths"
    is_locked = all("Permission denied" in item.found for item in evidence)
    return Problem(
        culprit=files.name,
        owner="admin" if is_locked else "user",
        message=f"{files.name} {version} is damaged: {told}",
        evidence=tuple(evidence[:_SHOWN_FILES]),
        remedy=_unlock() if is_locked else _reinstall(files.name, version, installed, policy),
    )


def _installed_version(files: DistributionFiles, installed: DistributionsFact) -> str:
    versions = {dist.path: dist.version for dist in installed.distributions}
    return versions.get(files.path) or installed.version_of(files.name)


def _reinstall(name: str, version: str, installed: DistributionsFact, policy: PolicyFact) -> Remedy:
    dist = installed.find(name)
    if dist and dist.installer == "conda":
        return Remedy(kind="reinstall-package", text=f"Reinstall {name} with conda, by force.")
    command = reinstall(policy, [(name, version)])
    return Remedy(
        kind="reinstall-package",
        text=f"Reinstall {name} by force; without force it counts as already satisfied.",
        commands=(command,) if command else (),
    )


def _unlock() -> Remedy:
    return Remedy(
        kind="config-change",
        text="Let this user read the environment, or look at it as the user who owns it.",
    )
