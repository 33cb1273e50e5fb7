"""Checks of paths that several packages own, and of packages for another CUDA."""

from __future__ import annotations

from envdoctor.check import check, problems
from envdoctor.collisions import Collision, find_collisions
from envdoctor.cuda_packages import find_orphans, torch_major
from envdoctor.facts import (
    Distribution,
    DistributionsFact,
    HostFact,
    InterpreterFact,
    LoaderFact,
    PolicyFact,
    RecordsFact,
    SharedPaths,
    TorchBuildFact,
)
from envdoctor.probes.record import matters
from envdoctor.reinstalls import uninstall_safely
from envdoctor.requirements import marker_environment, required_cuda_packages
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict


@check()
def package_files_overwritten(
    records: RecordsFact,
    installed: DistributionsFact,
    interpreter: InterpreterFact,
    host: HostFact,
    policy: PolicyFact,
) -> Verdict:
    """Two packages wrote the same paths with different contents.

    ## What it checks
    Paths in the RECORDs of several packages, with sizes and hashes; the files on disk tell who
    wrote last. `--deep` hashes them where sizes do not tell. One path with one content, such as
    the `nvidia/__init__.py` of the CUDA 12 packages, is normal.

    ## Why it matters
    No installer says a word: `nvidia-cudnn-cu12` installed over `nvidia-cudnn-cu13` takes its place
    and both look installed. An uninstall of either then deletes the files of both.

    ## Remedy
    Uninstall the intruder first, then reinstall by force the package that belongs here: the
    uninstall takes its files away as well.

    ## Source
    Tried with uv 0.13.9 and pip 26.3, 2026-11-29; flashinfer-ai/flashinfer#1742.
    """
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    collisions = find_collisions(records, installed, required)
    found = [_overwritten(item, records, installed, policy) for item in collisions]
    found += [
        _shared(group) for group in records.shared if group.num_paths and not group.num_conflicting
    ]
    return problems(found, Ok("no path is owned by packages that disagree about it"))


def _overwritten(
    collision: Collision, records: RecordsFact, installed: DistributionsFact, policy: PolicyFact
) -> Problem:
    keep, drop = collision.keep, collision.drop
    names = [f"{name} {installed.version_of(name)}" for name in (drop, keep)]
    decides = any(map(matters, collision.shared.owners))
    return Problem(
        culprit=drop,
        severity=Severity.ERROR if decides else Severity.WARNING,
        message=f"{names[0]} and {names[1]} own the same {collision.shared.num_conflicting} "
        f"path(s): {_last_writer(collision)}; uninstalling either deletes them",
        evidence=tuple(
            Evidence(
                subject=file.path,
                expected=" or ".join(
                    f"{expected} ({owner})"
                    for owner, expected in zip(collision.shared.owners, file.expected, strict=True)
                ),
                found=file.found,
            )
            for file in collision.shared.examples
        ),
        remedy=_remedy(collision, records, installed, policy),
    )


def _last_writer(collision: Collision) -> str:
    total = collision.shared.num_conflicting
    kept, dropped = collision.num_kept, collision.num_dropped
    if kept == dropped:
        return f"on disk {kept} may be of either (--deep tells)" if kept else "neither's are there"
    name, count = (collision.keep, kept) if kept > dropped else (collision.drop, dropped)
    return f"{name} wrote last, {count} of {total} hold its contents"


def _remedy(
    collision: Collision, records: RecordsFact, installed: DistributionsFact, policy: PolicyFact
) -> Remedy:
    keep, drop = collision.keep, collision.drop
    commands = uninstall_safely([drop], records, installed, policy, keep=[keep])
    if collision.dependants:
        listed = ", ".join(collision.dependants)
        return Remedy(
            kind="separate-environments",
            text=f"{listed} requires {drop}, which cannot be beside {keep}: give {listed} an "
            f"environment of its own, then uninstall {drop} and reinstall {keep}.",
            commands=uninstall_safely(
                [*collision.dependants, drop], records, installed, policy, keep=[keep]
            ),
        )
    return Remedy(
        kind="uninstall-then-reinstall",
        text=f"Uninstall {drop}, then reinstall {keep}, whose files go with it.",
        commands=commands,
    )


def _shared(group: SharedPaths) -> Problem:
    listed = " and ".join(group.owners)
    return Problem(
        culprit=group.owners[0],
        severity=Severity.INFO,
        message=f"{listed} own the same {group.num_paths} path(s) with the same contents: "
        "uninstalling one deletes the files of the other",
        remedy=Remedy(
            kind="uninstall-then-reinstall",
            text="After uninstalling one, reinstall the other by force.",
        ),
    )


@check(requires=["torch-not-installed", "cpu-torch-on-gpu-machine"])
def cuda_package_orphaned(
    records: RecordsFact,
    torch_build: TorchBuildFact,
    loader: LoaderFact,
    installed: DistributionsFact,
    policy: PolicyFact,
) -> Verdict:
    """NVIDIA packages for another CUDA are left, which nothing requires.

    ## What it checks
    The CUDA major release of each NVIDIA package (its suffix, or the folder of its libraries)
    against torch's, and whether any other package names it as a requirement or an extra.

    ## Why it matters
    They are left when torch moves to another CUDA. They take gigabytes, and they are how two CUDA
    runtimes get into one process. Packages that write the paths of torch's own are told by
    `package-files-overwritten`.

    ## Remedy
    Uninstall them. Files that they share with others have to be put back afterwards.

    ## Source
    NVIDIA/cudnn-frontend#211; sgl-project/sglang#31035.
    """
    major = torch_major(torch_build)
    if major is None:
        return Skipped("torch is not a CUDA build")
    told = _told_elsewhere(records, loader)
    orphans = [dist for dist in find_orphans(records, installed, major) if dist.name not in told]
    found = [
        _orphaned(group, major, severity, uninstall_safely(names, records, installed, policy))
        for group, severity in (
            ([dist for dist in orphans if not dist.is_requested], Severity.WARNING),
            ([dist for dist in orphans if dist.is_requested], Severity.INFO),
        )
        if (names := [dist.name for dist in group])
    ]
    return problems(found, Ok(f"every NVIDIA package is for CUDA {major} or required by another"))


def _told_elsewhere(records: RecordsFact, loader: LoaderFact) -> set[str]:
    """Return packages that wrote another's paths, or whose runtime `two-cuda-runtimes` names."""
    told = {name for group in records.shared if group.num_conflicting for name in group.owners}
    if len({item.name for item in loader.runtimes}) > 1:
        runtimes = {item.path for item in loader.runtimes}
        told |= {name for name, path in records.libraries if path in runtimes}
    return told


def _orphaned(
    group: list[Distribution], major: int, severity: Severity, commands: tuple[str, ...]
) -> Problem:
    names = ", ".join(dist.name for dist in group)
    asked = "; somebody asked for it by name" if severity is Severity.INFO else ""
    return Problem(
        culprit=names,
        severity=severity,
        message=f"{names}: for another CUDA than torch's {major}, and nothing requires it{asked}",
        evidence=tuple(
            Evidence(subject=dist.path, expected=f"for CUDA {major}", found=dist.version)
            for dist in group
        ),
        remedy=Remedy(
            kind="uninstall-package",
            text="Uninstall what nothing here needs.",
            commands=commands,
        ),
    )
