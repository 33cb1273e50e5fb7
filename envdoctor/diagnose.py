"""Read one environment and judge it."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envdoctor import settings
from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import (
    ComputeProbeFact,
    DistributionsFact,
    FactSet,
    HostFact,
    ImportProbeFact,
    InterpreterFact,
    NvidiaFact,
    PolicyFact,
    TorchBuildFact,
    Unavailable,
    VariablesFact,
)
from envdoctor.probes.registry import collect
from envdoctor.probes.run_file import read_run
from envdoctor.probes.run_records import read_log_records
from envdoctor.probes.subject import THIS_MACHINE, NamedRun, Probing, Subject
from envdoctor.report import Finding, Report
from envdoctor.requirements import name_of
from envdoctor.runner import run
from envdoctor.scope import is_judged, not_judged
from envdoctor.suppressions import chosen_suppressions
from envdoctor.value import keyword_value
from envdoctor.verdict import Skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from envdoctor.check import Check
    from envdoctor.facts import Suppression
    from envdoctor.profile import Profile


def diagnose(
    prefix: Path,
    *,
    profile: Profile | None = None,
    expect_gpu: bool | None = None,
    checks: Sequence[Check] = BUILTIN_CHECKS,
    all_records: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Report:
    """Judge an environment of this machine without running anything of it.

    Args:
        prefix: The environment's folder.
        profile: What it should be; None judges it by the bundled lists alone.
        expect_gpu: True makes a missing GPU an error, False silences it, None leaves a note.
        checks: Checks to run, prerequisites first.
        all_records: True to compare the files of every distribution with its RECORD.
        variables: Environment variables that its processes will see; None for those of this one.
    """
    place = Place(prefix=prefix, variables=variables, all_records=all_records)
    facts = gather(place, policy_of(profile, prefix=prefix, expect_gpu=expect_gpu))
    suppressions = chosen_suppressions(profile, (), BUILTIN_CHECKS)
    return judge(facts, profile=profile, checks=checks, suppressions=suppressions)


@keyword_value
class Place:
    """Where facts come from.

    Args:
        prefix: The environment's folder; None to take the snapshot's word for everything.
        root: Where the machine's files are; `/` unless a mounted root is inspected.
        given: Facts of a snapshot, which stand in for what would be read.
        variables: Environment variables that the environment's processes will see; None for the
            snapshot's, else for those of this process, else (of a mounted root) for none.
        all_records: True to compare the files of every distribution with its RECORD.
        logs: Logs of earlier runs, to look for known failures in.
        deep: True to hash every recorded file.
        progress: Told bytes hashed and bytes in all, now and then.
        probing: Leave to run programs in the environment; None to run nothing of it.
        run: What the trainer is to run in it; None if nobody said.
    """

    prefix: Path | None
    root: Path = THIS_MACHINE
    given: FactSet = field(default_factory=lambda: FactSet([]))
    variables: Mapping[str, str] | None = None
    all_records: bool = False
    logs: tuple[Path, ...] = ()
    deep: bool = False
    progress: Callable[[int, int], None] | None = None
    probing: Probing | None = None
    run: NamedRun | None = None

    @property
    def environment(self) -> Path:
        """The environment's folder, as the snapshot calls it where there is one."""
        told = self.given.get(InterpreterFact)
        return Path(told.prefix) if isinstance(told, InterpreterFact) else self.prefix or Path()


def gather(place: Place, policy: PolicyFact) -> FactSet:
    """Return all facts of a place: those given, and the rest as its probes read them."""
    subject = Subject(
        prefix=place.prefix or place.environment,
        root=place.root,
        variables=_variables(place),
        policy=policy,
        all_records=place.all_records,
        logs=place.logs,
        deep=place.deep,
        progress=place.progress,
        probing=place.probing,
        run=place.run,
    )
    if place.prefix is not None:
        return collect(subject, place.given)
    told = place.given.having(policy)
    told = told.having(read_run(subject, told))
    return told.having(read_log_records(subject, told)) if place.logs else told


def _variables(place: Place) -> Mapping[str, str]:
    given = place.given.get(VariablesFact)
    if place.variables is not None:
        return place.variables
    if isinstance(given, VariablesFact):
        return dict(given.values)
    return settings.load().variables if place.root == THIS_MACHINE else {}


def judge(
    facts: FactSet,
    *,
    profile: Profile | None = None,
    checks: Sequence[Check] = BUILTIN_CHECKS,
    suppressions: Sequence[Suppression] = (),
) -> Report:
    """Run checks over facts, wherever they come from; of a system that is not judged none runs."""
    environment = heading(facts)
    if is_judged(facts):
        findings = run(checks, facts, suppressions=suppressions)
    else:
        reason = Skipped(environment["not_judged"][0])
        findings = tuple(Finding(check=item.id, outcome=reason) for item in checks)
    return Report(
        environment=environment,
        findings=findings,
        required=required_checks(profile, checks),
    )


def required_checks(profile: Profile | None, checks: Sequence[Check]) -> frozenset[str]:
    """Return the checks whose skipping must not pass for health under a profile."""
    names = {"torch-not-installed", "torch-not-of-profile", "package-files-damaged"}
    if profile is None or profile.torch.variant == "cpu":
        names.discard("package-files-damaged")
    return frozenset(item.id for item in checks if item.id in names) if profile else frozenset()


def policy_of(profile: Profile | None, *, prefix: Path, expect_gpu: bool | None) -> PolicyFact:
    """Write down what the environment is wanted for, for checks to read."""
    install, uninstall = installer_commands(prefix)
    if profile is None:
        return PolicyFact(expect_gpu=expect_gpu, pip_install=install, pip_uninstall=uninstall)
    return PolicyFact(
        profile=profile.name,
        torch_version=profile.torch.version,
        variant=profile.torch.variant,
        arch=tuple(profile.torch.arch),
        forbid=tuple(profile.packages.forbid),
        packages=tuple(map(name_of, profile.packages.require)),
        driver_min=profile.gpu.driver_min,
        expect_gpu=expect_gpu,
        pip_install=install,
        pip_uninstall=uninstall,
    )


def installer_commands(prefix: Path) -> tuple[str, str]:
    """Return commands that reinstall into and uninstall from an environment.

    uv does it from outside, also where pip made the environment: pip runs code of what is broken,
    and refuses to reinstall a package whose RECORD is gone. `python -m uv` is there wherever
    envdoctor is.
    """
    python = shlex.quote(str(prefix / "bin/python"))
    uv = "uv" if shutil.which("uv") else f"{shlex.quote(sys.executable)} -m uv"
    return (
        f"{uv} pip install --python {python} --reinstall --no-deps",
        f"{uv} pip uninstall --python {python}",
    )


def heading(facts: FactSet) -> dict[str, Any]:
    """Return what stands above a report, as JSON-able data; keys of facts not read are None."""
    values: dict[str, Any] = dict.fromkeys(
        ("prefix", "python", "packages", "torch", "cuda", "arch", "driver", "gpus", "host")
    )
    for fact in facts:
        match fact:
            case InterpreterFact():
                values |= {"prefix": fact.prefix, "python": fact.version}
            case DistributionsFact():
                values["packages"] = len(fact.distributions)
            case TorchBuildFact():
                values |= {"torch": fact.version, "cuda": fact.cuda, "arch": list(fact.arch)}
            case NvidiaFact():
                values["driver"] = fact.driver
                values["gpus"] = [f"{gpu.name} ({gpu.capability})" for gpu in fact.gpus]
            case HostFact():
                values["host"] = {
                    "machine": fact.machine,
                    "kernel": fact.kernel,
                    "glibc": fact.glibc,
                    "shm_bytes": fact.shm_bytes,
                    "disk_free_bytes": fact.disk_free_bytes,
                }
            case _:
                pass
    return values | {"loaded": loaded_libraries(facts), "not_judged": not_judged(facts)}


def loaded_libraries(facts: FactSet) -> list[str] | None:
    """Return the libraries of torch and CUDA that programs had loaded; None if none ran."""
    ran = [
        fact
        for fact in (facts.get(ImportProbeFact), facts.get(ComputeProbeFact))
        if not isinstance(fact, Unavailable) and fact.run.status == "passed"
    ]
    return sorted({item.path for fact in ran for item in fact.libraries}) if ran else None
