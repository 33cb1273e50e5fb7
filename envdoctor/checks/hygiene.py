"""Checks for what interrupted or doubled installations leave behind."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from envdoctor.check import check, problems
from envdoctor.facts import Distribution, DistributionsFact, PolicyFact
from envdoctor.probes.record import matters
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict


@check()
def duplicate_distribution(installed: DistributionsFact, policy: PolicyFact) -> Verdict:
    """A distribution is installed twice in one folder.

    ## What it checks
    Two `.dist-info` folders of the same normalised name in one package folder. (The same name in an
    environment and in the system packages below it is ordinary shadowing.)

    ## Why it matters
    Which version a tool sees depends on the order of the folder's entries; an uninstall removes one
    set of files and leaves the other's metadata.

    ## Remedy
    Uninstall every copy, then install the wanted version.

    ## Source
    python/cpython#100666.
    """
    groups: dict[tuple[str, str], list[Distribution]] = {}
    for dist in installed.distributions:
        groups.setdefault((str(PurePath(dist.path).parent), dist.name), []).append(dist)
    found = [
        _duplicate(name, group, policy) for (_, name), group in groups.items() if len(group) > 1
    ]
    return problems(found, Ok(f"{len(installed.distributions)} distributions, each once"))


def _duplicate(name: str, group: list[Distribution], policy: PolicyFact) -> Problem:
    versions = " and ".join(dist.version or "no version" for dist in group)
    return Problem(
        culprit=name,
        severity=Severity.ERROR if matters(name) else Severity.WARNING,
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
                f"{policy.pip_install} {name}=={group[-1].version}",
            ),
        ),
    )


@check()
def interrupted_uninstall_leftover(installed: DistributionsFact) -> Verdict:
    """An interrupted pip run left a folder whose name begins with `~`.

    ## What it checks
    Entries of the package folders that begin with `~`: pip renames to such names before it deletes.

    ## Why it matters
    They hold gigabytes, and the package whose name they carry may be incomplete.

    ## Remedy
    Remove the folders; reinstall the package if it is damaged.

    ## Source
    pip's uninstallation through a renamed folder; its "Ignoring invalid distribution" warning.
    """
    found = [
        Problem(
            culprit=path,
            severity=Severity.WARNING,
            message=f"{path} is left over from an interrupted pip run",
            evidence=(Evidence(subject=path, expected="no such entry", found="there"),),
            remedy=Remedy(
                kind="remove-leftover", text="Remove it.", commands=(f"rm -r {shlex.quote(path)}",)
            ),
        )
        for path in installed.leftovers
    ]
    return problems(found, Ok("no leftovers"))
