"""Read one environment and judge it."""

from __future__ import annotations

import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Any

from envdoctor import settings
from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import (
    DistributionsFact,
    FactSet,
    HostFact,
    InterpreterFact,
    NvidiaFact,
    PolicyFact,
    TorchBuildFact,
)
from envdoctor.probes import collect
from envdoctor.probes.subject import Subject
from envdoctor.report import Report
from envdoctor.runner import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from envdoctor.check import Check
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
    """Judge an environment without running anything of it.

    Args:
        prefix: The environment's folder.
        profile: What it should be; None judges it by the bundled lists alone.
        expect_gpu: True makes a missing GPU an error, False silences it, None leaves a note.
        checks: Checks to run, prerequisites first.
        all_records: True to compare the files of every distribution with its RECORD.
        variables: Environment variables that its processes will see; None for those of this one.
    """
    policy = policy_of(profile, prefix=prefix, expect_gpu=expect_gpu)
    if variables is None:
        variables = settings.load().variables
    subject = Subject(prefix=prefix, variables=variables, policy=policy, all_records=all_records)
    facts = collect(subject)
    required = required_checks(profile, checks)
    return Report(environment=heading(facts), findings=run(checks, facts), required=required)


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
        driver_min=profile.gpu.driver_min,
        expect_gpu=expect_gpu,
        pip_install=install,
        pip_uninstall=uninstall,
    )


def installer_commands(prefix: Path) -> tuple[str, str]:
    """Return commands that reinstall into and uninstall from an environment.

    An environment that uv made has no pip, so uv does it from outside; `python -m uv` is there
    wherever envdoctor is.
    """
    python = shlex.quote(str(prefix / "bin/python"))
    if any(prefix.glob("lib/python3*/site-packages/pip/__init__.py")):
        pip = f"{python} -m pip"
        return f"{pip} install --force-reinstall --no-deps", f"{pip} uninstall -y"
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
    return values
