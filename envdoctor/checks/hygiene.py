"""Checks for what interrupted or doubled installations leave behind."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath

from envdoctor.check import check, problems
from envdoctor.duplicates import duplicate_groups, leftovers_of
from envdoctor.facts import (
    Distribution,
    DistributionsFact,
    PolicyFact,
    RecordsFact,
)
from envdoctor.pins import matters
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict

_LEFTOVER = re.compile(r"~+(.*?)(?:-[^-]+\.dist-info)?$")


@check()
def duplicate_distribution(installed: DistributionsFact, policy: PolicyFact) -> Verdict:
    """A distribution is installed twice in one folder.

    ## What it checks
    Two `.dist-info` folders of the same normalised name in one package folder. The leftover is the
    one without METADATA or RECORD, or whose version is not the one that the code states.

    ## Why it matters
    Which version a tool sees depends on the order of the folder's entries:
    `importlib.metadata.version("torch")` gives None or the old version, and an uninstall removes
    one set of files and leaves the other's metadata.

    ## Remedy
    Remove the folder that is the leftover. Where nothing tells which one it is, uninstall every
    copy and install the wanted version.

    ## Source
    python/cpython#100666.
    """
    found = [
        _left_over(group, leftovers) if leftovers else _undecided(group, policy)
        for group in duplicate_groups(installed)
        for leftovers in [leftovers_of(group)]
    ]
    return problems(found, Ok(f"{len(installed.distributions)} distributions, each once"))


def _left_over(group: list[Distribution], leftovers: dict[str, list[Distribution]]) -> Problem:
    name = group[0].name
    odd = [(dist, why) for why, dists in leftovers.items() for dist in dists]
    folders = [PurePath(dist.path).name for dist, _ in odd]
    listed = ", ".join(f"{PurePath(dist.path).name} {why}" for dist, why in odd)
    return Problem(
        culprit=folders[0],
        severity=_severity(name),
        message=f"{name} has multiple metadata folders, of which one is a leftover: {listed}",
        evidence=tuple(
            Evidence(subject=dist.path, expected="no second dist-info", found=why)
            for dist, why in odd
        ),
        remedy=Remedy(
            kind="remove-leftover",
            text="Remove exactly that folder; the package itself stays as it is.",
            commands=tuple(f"rm -r {shlex.quote(dist.path)}" for dist, _ in odd),
        ),
    )


def _undecided(group: list[Distribution], policy: PolicyFact) -> Problem:
    name = group[0].name
    versions = " and ".join(dist.version or "no version" for dist in group)
    newest = max(group, key=lambda dist: (dist.installed_at, dist.path))
    return Problem(
        culprit=name,
        severity=_severity(name),
        message=f"{name} is installed {len(group)} times in one folder: {versions}",
        evidence=tuple(
            Evidence(subject=dist.path, expected="one dist-info", found=dist.version)
            for dist in group
        ),
        remedy=Remedy(
            kind="remove-leftover-and-reinstall",
            text="Uninstall every copy, then install the wanted version.",
            commands=(
                *(f"{policy.pip_uninstall} {name}" for _ in group),
                f"{policy.pip_install} {name}=={newest.version}",
            ),
        ),
    )


def _severity(name: str) -> Severity:
    return Severity.ERROR if matters(name) else Severity.WARNING


@check()
def interrupted_uninstall_leftover(
    installed: DistributionsFact, records: RecordsFact, policy: PolicyFact
) -> Verdict:
    """An interrupted pip run left a folder whose name begins with `~`.

    ## What it checks
    Entries of the package folders that begin with `~`: pip renames to such names before it deletes.
    Whether the package of that name is whole decides if it has to be reinstalled.

    ## Why it matters
    They hold gigabytes, and the package whose name they carry may be incomplete.

    ## Remedy
    Remove the folders; reinstall the package if it is damaged.

    ## Source
    pip's uninstallation through a renamed folder; its "Ignoring invalid distribution" warning.
    """
    groups: dict[str, list[str]] = {}
    for path in installed.leftovers:
        match = _LEFTOVER.match(PurePath(path).name)
        stem = match[1].replace("_", "-").lower() if match else path
        groups.setdefault(f"{PurePath(path).parent}/{stem}", []).append(path)
    found = [_interrupted(paths, installed, records, policy) for paths in groups.values()]
    return problems(found, Ok("no leftovers"))


def _interrupted(
    paths: list[str], installed: DistributionsFact, records: RecordsFact, policy: PolicyFact
) -> Problem:
    stem = PurePath(paths[0]).name.lstrip("~").partition("-")[0].replace("_", "-").lower()
    # pip replaces the first letters of the name by `~`, so what is left is its end.
    dist = next((dist for dist in installed.distributions if dist.name[1:] == stem), None)
    broken = dist is not None and any(
        files.name == dist.name and files.differing for files in records.distributions
    )
    removal = tuple(f"rm -r {shlex.quote(path)}" for path in paths)
    again = f"{policy.pip_install} {dist.name}=={dist.version}" if dist and broken else ""
    return Problem(
        culprit=paths[0],
        severity=Severity.WARNING,
        message=f"{' and '.join(paths)} {'is' if len(paths) == 1 else 'are'} left over from an "
        f"interrupted pip run{' of ' + dist.name if dist else ''}",
        evidence=tuple(
            Evidence(subject=path, expected="no such entry", found="there") for path in paths
        ),
        remedy=Remedy(
            kind="remove-leftover-and-reinstall" if again else "remove-leftover",
            text="Remove it, then reinstall the package." if again else "Remove it.",
            commands=(*removal, again) if again else removal,
        ),
    )


@check()
def editable_source_gone(installed: DistributionsFact, policy: PolicyFact) -> Verdict:
    """An editable installation points to a folder that is not there.

    ## What it checks
    `direct_url.json` of packages that were installed with `-e`: the source folder exists.

    ## Why it matters
    The package counts as installed, and importing it fails with ModuleNotFoundError: the checkout
    was moved or deleted.

    ## Remedy
    Install it again from where its source is now, or uninstall it.

    ## Source
    PyPA "Recording the Direct URL Origin of installed distributions".
    """
    found = [
        Problem(
            culprit=dist.name,
            message=f"{dist.name} {dist.version} is an editable installation of {dist.editable}, "
            "which is not there",
            evidence=(Evidence(subject=dist.editable, expected="a folder", found="missing"),),
            remedy=Remedy(
                kind="uninstall-package",
                text=f"Uninstall it, or install it with -e from where {dist.name} lies now.",
                commands=(f"{policy.pip_uninstall} {dist.name}",),
            ),
        )
        for dist in installed.distributions
        if dist.is_editable_gone
    ]
    return problems(found, Ok("every editable installation has its source"))
