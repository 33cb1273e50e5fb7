"""Checks for packages that do not belong in a training environment."""

from __future__ import annotations

import shlex
from fnmatch import fnmatch

from envdoctor.check import check, problems
from envdoctor.compatibility import strays
from envdoctor.facts import Distribution, DistributionsFact, HostFact, InterpreterFact, PolicyFact
from envdoctor.probes.distributions import normalised
from envdoctor.requirements import cuda_requirements_of, marker_environment, satisfies
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict


@check()
def stray_package(
    installed: DistributionsFact, interpreter: InterpreterFact, host: HostFact, policy: PolicyFact
) -> Verdict:
    """A package that does not belong in a training environment is installed.

    ## What it checks
    Installed distributions against the profile's `packages.forbid`, or the bundled list of serving
    engines (sglang, flashinfer, vllm and others) if no profile is named.

    ## Why it matters
    Serving engines pin their own torch, Triton and NVIDIA packages; installing one swaps libraries
    under the trainer. It is an error when the profile forbids it or when its pins do not hold here.

    ## Remedy
    Uninstall it here; give the engine an environment of its own.

    ## Source
    sgl-project/sglang#14314; flashinfer-ai/flashinfer#1742.
    """
    forbidden = forbidden_globs(policy)
    environment = marker_environment(interpreter, host)
    found = [
        _stray(dist, _broken_pin(dist, installed, environment), forbidden[pattern], policy)
        for dist in installed.distributions
        if (pattern := next((glob for glob in forbidden if fnmatch(dist.name, glob)), None))
    ]
    return problems(found, Ok(f"none of {len(forbidden)} unwanted kinds of package is installed"))


def forbidden_globs(policy: PolicyFact) -> dict[str, str]:
    """Return globs over distribution names with the reason for each."""
    bundled = {stray.name: stray.why for stray in strays()}
    if policy.profile is None:
        return bundled
    return {
        glob: bundled.get(glob, f"profile {policy.profile} forbids it") for glob in policy.forbid
    }


def _broken_pin(
    dist: Distribution, installed: DistributionsFact, environment: dict[str, str]
) -> str:
    """Return the first requirement on torch or a CUDA package that does not hold; empty if none."""
    for name, requirement in cuda_requirements_of(dist, environment):
        target = installed.find(name)
        if target and not satisfies(target.version, requirement):
            return f"{requirement.name}{requirement.specifier}, installed is {target.version}"
    return ""


def _stray(dist: Distribution, broken: str, why: str, policy: PolicyFact) -> Problem:
    is_error = bool(broken) or policy.profile is not None
    reason = f"it requires {broken}" if broken else why
    return Problem(
        culprit=dist.name,
        severity=Severity.ERROR if is_error else Severity.WARNING,
        message=f"{dist.name} {dist.version} does not belong in a training environment: {reason}",
        evidence=(Evidence(subject=dist.path, expected="not installed", found=dist.version),),
        remedy=Remedy(
            kind="uninstall-package",
            text=f"Uninstall {dist.name}; give it an environment of its own if you need it.",
            commands=(f"{policy.pip_uninstall} {dist.name}",),
        ),
    )


@check()
def stray_module(installed: DistributionsFact, policy: PolicyFact) -> Verdict:
    """A module of an unwanted package is left without its metadata.

    ## What it checks
    Top-level modules of unwanted packages for which no distribution is installed.

    ## Why it matters
    Such a folder is imported like an installed package, but no installer knows of it: it is what an
    interrupted or partial uninstall leaves.

    ## Remedy
    Remove the folder: no installer knows of it.

    ## Source
    pypa/pip#4705.
    """
    names = {dist.name for dist in installed.distributions}
    found = [
        _leftover_module(module, path, policy)
        for module, path in installed.modules
        if (owner := _owner_glob(module, policy))
        and not any(fnmatch(name, owner) for name in names)
    ]
    return problems(found, Ok("no module of an unwanted package is left"))


def _owner_glob(module: str, policy: PolicyFact) -> str:
    """Return the glob of the unwanted package that a module belongs to; empty if none does."""
    forbidden = forbidden_globs(policy)
    for stray in strays():
        if module in stray.modules and stray.name in forbidden:
            return stray.name
    return next((glob for glob in forbidden if fnmatch(normalised(module), glob)), "")


def _leftover_module(module: str, path: str, policy: PolicyFact) -> Problem:
    return Problem(
        culprit=path,
        severity=Severity.WARNING if policy.profile is None else Severity.ERROR,
        message=f"module {module} is importable, but no installed package owns it",
        evidence=(Evidence(subject=path, expected="an owner's dist-info", found="none"),),
        remedy=Remedy(
            kind="remove-leftover",
            text=f"Remove {path}; no installer will.",
            commands=(f"rm -r {shlex.quote(path)}",),
        ),
    )
