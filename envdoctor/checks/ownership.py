"""Checks of paths that several packages own, and of packages for another CUDA."""

from __future__ import annotations

from envdoctor.check import check, problems
from envdoctor.collisions import Collision, find_collisions
from envdoctor.facts import (
    DistributionsFact,
    HostFact,
    InterpreterFact,
    PolicyFact,
    RecordsFact,
    SharedPaths,
)
from envdoctor.probes.record import matters
from envdoctor.reinstalls import uninstall_safely
from envdoctor.requirements import marker_environment, required_cuda_packages
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict


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
