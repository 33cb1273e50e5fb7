"""Checks for packages that do not belong in a training environment."""

from __future__ import annotations

import shlex
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.compatibility import strays
from envdoctor.facts import (
    Distribution,
    DistributionsFact,
    HostFact,
    InterpreterFact,
    PolicyFact,
)
from envdoctor.orphans import Requirers
from envdoctor.pins import Pin, conflicting_engines, read_pins
from envdoctor.probes.distributions import normalised
from envdoctor.requirements import library_stem, marker_environment
from envdoctor.value import value
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DRIVER_MODULE = "nvidia-ml-py"
"""Asks the driver, in Python, and holds no CUDA; envdoctor itself requires it."""


@value
class StrayGroup:
    """Unwanted packages that came in together.

    Args:
        leader: The one that the others belong to.
        others: Unwanted packages of the same kind, or that the leader requires.
        orphans: Packages that are not unwanted, but that only these require.
        why: Why they do not belong here.
    """

    leader: Distribution
    others: tuple[Distribution, ...]
    orphans: tuple[Distribution, ...]
    why: str

    @property
    def members(self) -> tuple[Distribution, ...]:
        """The unwanted packages."""
        return (self.leader, *self.others)


@check()
def stray_package(
    installed: DistributionsFact, interpreter: InterpreterFact, host: HostFact, policy: PolicyFact
) -> Verdict:
    """A package that does not belong in a training environment is installed.

    ## What it checks
    Installed distributions against the profile's `packages.forbid`, or the bundled list of serving
    engines (sglang, flashinfer, vllm and others) if no profile is named. Packages that only such an
    engine brought in are listed with it. nvidia-ml-py, which only asks the driver, counts where it
    is forbidden by its name.

    ## Why it matters
    Serving engines pin their own torch, Triton and NVIDIA packages; installing one swaps libraries
    under the trainer. It is an error when the profile forbids it or when its pins do not hold here.

    ## Remedy
    Uninstall it here with what it brought in; give the engine an environment of its own.

    ## Source
    sgl-project/sglang#14314; flashinfer-ai/flashinfer#1742.
    """
    forbidden = forbidden_globs(policy)
    if not any(is_forbidden(dist.name, forbidden) for dist in installed.distributions):
        return Ok(f"none of {len(forbidden)} unwanted kinds of package is installed")
    environment = marker_environment(interpreter, host)
    pins = list(read_pins(installed, environment))
    named = {pin.dist.name for pin in (conflicting_engines(pins) or ())[:1]}
    found = [
        _stray(group, _broken_pin(group, pins), installed, policy)
        for group in group_strays(installed, environment, forbidden)
        if named.isdisjoint(dist.name for dist in group.members)
    ]
    return problems(found, Ok("the unwanted packages are named by another check"))


def forbidden_globs(policy: PolicyFact) -> dict[str, str]:
    """Return globs over distribution names with the reason for each."""
    bundled = {stray.name: stray.why for stray in strays()}
    if policy.profile is None:
        return bundled
    return {
        glob: bundled.get(glob, f"profile {policy.profile} forbids it") for glob in policy.forbid
    }


def is_forbidden(name: str, forbidden: Mapping[str, str]) -> str:
    """Return the glob that a distribution's name falls under; empty if it is welcome."""
    if name == _DRIVER_MODULE:
        return name if name in forbidden else ""
    return next((glob for glob in forbidden if fnmatch(name, glob)), "")


def group_strays(
    installed: DistributionsFact, environment: dict[str, str], forbidden: Mapping[str, str]
) -> Iterator[StrayGroup]:
    """Yield the unwanted packages, each with those of its kind and those that it requires."""
    globs = {
        dist.name: glob
        for dist in installed.distributions
        if (glob := is_forbidden(dist.name, forbidden))
    }
    dists = {dist.name: dist for dist in installed.distributions}
    requirers = Requirers(installed, environment)
    orphans = requirers.only_through(globs)
    left = dict(globs)
    # The one that requires most is the reason for the others.
    reach = {name: requirers.reachable([name]) for name in globs}
    for name in sorted(globs, key=lambda name: (-len(reach[name] & set(globs)), -len(reach[name]))):
        if name not in left:
            continue
        members = [other for other in left if other in reach[name] or left[other] == left[name]]
        for member in members:
            del left[member]
        brought = requirers.reachable(members)
        leader, *others = sorted(members, key=lambda member: (member != name, member))
        yield StrayGroup(
            leader=dists[leader],
            others=tuple(dists[other] for other in others),
            orphans=tuple(dist for dist in orphans if dist.name in brought),
            why=forbidden[globs[name]],
        )
        orphans = [dist for dist in orphans if dist.name not in brought]


def _broken_pin(group: StrayGroup, pins: list[Pin]) -> str:
    """Return the first requirement on an installed package that does not hold; empty if none."""
    names = {dist.name for dist in group.members}
    broken = (pin for pin in pins if pin.dist.name in names and pin.found and not pin.holds)
    return next((f"{pin.text}, installed is {pin.found}" for pin in broken), "")


def _stray(
    group: StrayGroup, broken: str, installed: DistributionsFact, policy: PolicyFact
) -> Problem:
    leader = group.leader
    is_error = bool(broken) or policy.profile is not None
    reason = f"it requires {broken}" if broken else group.why
    more = f" (with {_listed(group.others)})" if group.others else ""
    brought = "" if not group.orphans else f"; it brought in {_listed(group.orphans)}"
    return Problem(
        culprit=leader.name,
        severity=Severity.ERROR if is_error else Severity.WARNING,
        message=f"{leader.name} {leader.version}{more} does not belong in a training environment: "
        f"{reason}{brought}",
        evidence=(
            *(
                Evidence(subject=dist.path, expected="not installed", found=dist.version)
                for dist in group.members
            ),
            *(
                Evidence(subject=dist.path, found="only the packages above require it")
                for dist in group.orphans
            ),
        ),
        remedy=Remedy(
            kind="uninstall-package",
            text=f"Uninstall {leader.name} and what came with it; give it an environment of its "
            "own if you need it.",
            commands=_removal(group, installed, policy),
        ),
    )


def _listed(dists: tuple[Distribution, ...]) -> str:
    return ", ".join(f"{dist.name} {dist.version}" for dist in dists)


def _removal(
    group: StrayGroup, installed: DistributionsFact, policy: PolicyFact
) -> tuple[str, ...]:
    """Return the commands; who shares paths with what is removed is reinstalled after it."""
    removed = [dist.name for dist in (*group.members, *group.orphans)]
    stems = {library_stem(name) for name in removed if name.startswith("nvidia-")}
    losers = [
        f"{dist.name}=={dist.version}"
        for dist in installed.distributions
        if dist.name not in removed and library_stem(dist.name) in stems
    ]
    commands = [f"{policy.pip_uninstall} {' '.join(removed)}"]
    if losers:
        commands.append(f"{policy.pip_install} {' '.join(losers)}")
    return tuple(commands)


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
    return is_forbidden(normalised(module), forbidden)


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
