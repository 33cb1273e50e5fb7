"""What an environment must show before it is put in place."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from envdoctor import manifest
from envdoctor.diagnose import diagnose
from envdoctor.errors import VerificationError
from envdoctor.facts import Distribution, DistributionsFact, InterpreterFact
from envdoctor.machine_checks import OF_THE_MACHINE
from envdoctor.probes.files import read_text
from envdoctor.probes.record import parse_rows
from envdoctor.probes.registry import collect
from envdoctor.probes.subject import Subject
from envdoctor.verdict import Severity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from envdoctor.facts import FactSet
    from envdoctor.profile import Profile
    from envdoctor.pylock import Lock
    from envdoctor.report import Report
    from envdoctor.workshop import Workshop

_SHOWN = 5
_WRITTEN_BY_UV = frozenset({"_virtualenv.py", "_virtualenv.pth"})


class UnfitEnvironmentError(VerificationError):
    """An environment does not pass; carries the report that says why.

    Args:
        message: See `EnvdoctorError`.
        reference: See `EnvdoctorError`.
        hint: See `EnvdoctorError`.
        report: What was found; None if the failure is none that a check reports.
    """

    def __init__(
        self, message: str, *, reference: str, hint: str = "", report: Report | None = None
    ) -> None:
        super().__init__(message, reference=reference, hint=hint)
        self.report = report


def verify_files(
    env: Path, lock: Lock, profile: Profile, shop: Workshop, *, sealed: Collection[str] = ()
) -> Report:
    """Hold an environment against its lock, its own records and its profile; run nothing of it.

    Args:
        env: The environment's folder.
        lock: What was to be installed.
        profile: What it is for.
        shop: Has the variables that its processes would see.
        sealed: Paths below it of what was there when it passed before: a package may write files
            when it is imported.

    Raises:
        UnfitEnvironmentError: It does not pass.
    """
    facts = collect(Subject(prefix=env, variables=shop.variables, all_records=True))
    require_versions(facts.need(DistributionsFact).distributions, lock)
    require_owners(facts, allowed={f"{env.resolve()}/{path}" for path in sealed})
    report = diagnose(env, profile=profile, all_records=True, variables=shop.variables)
    require_health(report, env)
    for problem in of_machine(report):
        shop.stages.note(f"{problem}; built and checked on the CPU")
    return report


def require_versions(installed: Iterable[Distribution], lock: Lock) -> None:
    """Compare what is installed with the lock.

    Raises:
        UnfitEnvironmentError: A package is missing, foreign, doubled or of another version.
    """
    found = sorted((dist.name, _canonical(dist.version)) for dist in installed)
    wanted = sorted((wheel.name, _canonical(wheel.version)) for wheel in lock.wheels)
    lacking = [pair for pair in wanted if pair not in found]
    foreign = [pair for pair in found if pair not in wanted or found.count(pair) > 1]
    if lacking or foreign:
        raise UnfitEnvironmentError(
            f"what was installed is not what was resolved: missing {_pairs(lacking)}; "
            f"not asked for {_pairs(foreign)}",
            reference="not-as-resolved",
        )


def require_owners(facts: FactSet, *, allowed: Collection[str] = ()) -> None:
    """Refuse files in the package folders that no RECORD lists.

    Args:
        facts: Of the environment.
        allowed: Real paths of files that may be there.

    Raises:
        UnfitEnvironmentError: There are some.
    """
    found = [Path(path) for path in ownerless(facts)]
    strays = [str(one) for one in found if str(one.parent.resolve() / one.name) not in allowed]
    if strays:
        raise UnfitEnvironmentError(
            f"{len(strays)} files belong to no package: {listed(strays)}", reference="stray-files"
        )


def require_same_files(env: Path, before: Mapping[str, os.stat_result]) -> None:
    """Refuse an environment that lost or changed files; new ones are no matter.

    Args:
        env: Its folder.
        before: State of its files when they were verified, by path below it.

    Raises:
        UnfitEnvironmentError: It has.
    """
    now = {path: _state(status) for path, status in manifest.scan(env).items()}
    changed = [path for path, status in before.items() if now.get(path) != _state(status)]
    if changed:
        raise UnfitEnvironmentError(
            f"its modules change the environment when they are imported: {listed(changed)}",
            reference="imports-change-files",
        )


def _state(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mode, status.st_size, status.st_mtime_ns


def ownerless(facts: FactSet) -> list[str]:
    """Return the files in the package folders that no RECORD lists, compiled bytecode left out."""
    owned: set[str] = set()
    for dist in facts.need(DistributionsFact).distributions:
        site = str(Path(dist.path).parent)
        rows = parse_rows(read_text(f"{dist.path}/RECORD") or "")
        owned.update(os.path.normpath(f"{site}/{path}") for path, *_ in rows)
    found = []
    for site in facts.need(InterpreterFact).site_packages:
        for parent, folders, files in os.walk(site):
            folders[:] = [name for name in folders if name != "__pycache__"]
            names = (name for name in files if name not in _WRITTEN_BY_UV)
            found += [path for name in names if (path := f"{parent}/{name}") not in owned]
    return found


def require_health(report: Report, env: Path) -> None:
    """Refuse an environment whose report has errors other than of the machine that it lies on.

    Raises:
        UnfitEnvironmentError: It has, or a required check said nothing.
    """
    own = tuple(one for one in report.findings if one.check not in OF_THE_MACHINE)
    judged = replace(report, findings=own)
    if judged.exit_code:
        first = next(iter(judged.problems()), None)
        reason = first.message if first else "a required check said nothing"
        raise UnfitEnvironmentError(
            f"{env} does not pass its checks: {reason}", reference="checks-failed", report=report
        )


def of_machine(report: Report) -> list[str]:
    """Return what is wrong with the machine: it keeps nobody from building for another."""
    return [
        problem.message
        for finding, problem in report.ranked()
        if finding.check in OF_THE_MACHINE and problem.severity is Severity.ERROR
    ]


def _canonical(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        return version


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return listed([f"{name} {version}" for name, version in pairs])


def listed(items: list[str]) -> str:
    """Return the first of some things in words, and how many more there are."""
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return (", ".join(items[:_SHOWN]) + more) or "nothing"
