"""Checks that installed packages agree about torch and about each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.checks.strays import forbidden_globs, is_forbidden
from envdoctor.compatibility import companion_versions
from envdoctor.facts import (
    Distribution,
    DistributionsFact,
    HostFact,
    InterpreterFact,
    PolicyFact,
)
from envdoctor.orphans import Requirers
from envdoctor.pins import BUILT_WITH_TORCH, Pin, conflicting_engines, read_pins
from envdoctor.requirements import marker_environment
from envdoctor.torch_index import index_option, public_version
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence


@check(requires=["torch-not-installed", "module-shadowed", "namespace-package-closed"])
def engines_pin_different_torch(
    installed: DistributionsFact, interpreter: InterpreterFact, host: HostFact, policy: PolicyFact
) -> Verdict:
    """Two serving engines in one environment require different releases of torch.

    ## What it checks
    What the installed serving engines and their kernels require of torch, against each other, where
    one of them wants exactly one release (`==`).

    ## Why it matters
    The last installation wins and leaves the other engine's pins broken: its compiled extensions
    were made for another torch and fail at import or at the first kernel.

    ## Remedy
    One environment for each engine; uninstall here the one that the job does not need.

    ## Source
    sgl-project/sglang#14314.
    """
    environment = marker_environment(interpreter, host)
    pair = conflicting_engines(list(read_pins(installed, environment)))
    if pair is None:
        return Ok("no two engines disagree about torch")
    broken, other = pair
    orphans = Requirers(installed, environment).only_through([broken.dist.name])
    removed = " ".join([broken.dist.name, *(dist.name for dist in orphans)])
    return Problem(
        culprit=broken.dist.name,
        message=f"{_named(broken.dist)} requires {broken.text} and {_named(other.dist)} requires "
        f"{other.text}: they cannot share an environment (installed is torch {broken.found})",
        evidence=tuple(
            Evidence(subject=_named(pin.dist), expected=pin.text, found=f"torch {pin.found}")
            for pin in pair
        ),
        remedy=Remedy(
            kind="separate-environments",
            text=f"Give each engine an environment of its own; here uninstall {broken.dist.name}, "
            "whose pin does not hold.",
            commands=(f"{policy.pip_uninstall} {removed}",),
        ),
    )


@check(requires=["cpu-torch-on-gpu-machine", "module-shadowed", "namespace-package-closed"])
def requirement_not_met(
    installed: DistributionsFact, interpreter: InterpreterFact, host: HostFact, policy: PolicyFact
) -> Verdict:
    """An installed package requires another version of torch, or of what is built with it.

    ## What it checks
    What every installed package requires of torch, torchvision, torchaudio, Triton, xformers,
    flash-attn and the NVIDIA packages, against what is installed. Packages that do not belong here
    are left to their own check.

    ## Why it matters
    An installer checks requirements of what it installs, not of what was there before: one
    `pip install` replaces torch under a package that was compiled for another.

    ## Remedy
    Take the release of the package that was built for the installed torch; or, if it is the
    requirement that should win, install what it asks for.

    ## Source
    METADATA of installed packages; facebookresearch/xformers#752; pytorch/audio#4226.
    """
    pins = list(read_pins(installed, marker_environment(interpreter, host)))
    forbidden = forbidden_globs(policy)
    conflict = conflicting_engines(pins) or ()
    broken = [
        pin
        for pin in pins
        if not pin.holds
        and not is_forbidden(pin.dist.name, forbidden)
        and all(pin.dist is not other.dist for other in conflict)
    ]
    found = [_not_met(pin, installed, policy) for pin in _one_each(broken)]
    return problems(found, Ok(f"all {len(pins)} requirements on torch and its companions hold"))


def _one_each(pins: Sequence[Pin]) -> list[Pin]:
    """Keep one requirement of each package: that on torch explains those on what torch brings."""
    chosen: dict[str, Pin] = {}
    for pin in sorted(pins, key=lambda pin: pin.name != "torch"):
        chosen.setdefault(pin.dist.name, pin)
    return list(chosen.values())


def _not_met(pin: Pin, installed: DistributionsFact, policy: PolicyFact) -> Problem:
    found = f"installed is {pin.found}" if pin.found else "which is not installed"
    return Problem(
        culprit=pin.dist.name,
        severity=Severity.ERROR if pin.found else Severity.WARNING,
        message=f"{_named(pin.dist)} requires {pin.text}; {found}",
        evidence=(
            Evidence(
                subject=f"{pin.dist.path}/METADATA",
                expected=pin.text,
                found=f"{pin.name} {pin.found}" if pin.found else "not installed",
            ),
        ),
        remedy=_agreeing_remedy(pin, installed, policy),
    )


def _agreeing_remedy(pin: Pin, installed: DistributionsFact, policy: PolicyFact) -> Remedy:
    """Change the package that follows: torch stays, what was built for another torch moves."""
    name, torch = pin.dist.name, installed.version_of("torch")
    if pin.name != "torch" or not pin.found:
        return Remedy(
            kind="install-pinned-version",
            text=f"Install the {pin.name} that {name} requires, or a {name} that takes another.",
            commands=(f"{policy.pip_add} '{pin.text}' 'torch=={torch}'",),
        )
    version = companion_versions().get(public_version(torch), {}).get(name)
    if version:
        return Remedy(
            kind="install-matching-pair",
            text=f"{name} {version} is the one for torch {torch}.",
            commands=(f"{policy.pip_install} {index_option(torch)}{name}=={version}",),
        )
    return Remedy(
        kind="install-matching-wheel" if name in BUILT_WITH_TORCH else "install-pinned-version",
        text=f"Take the {name} that was built for torch {torch}; or install {pin.text}, if it is "
        f"{name} that should stay, and all that goes with it.",
        commands=(f"{policy.pip_add} --upgrade {name} 'torch=={torch}'",),
    )


def _named(dist: Distribution) -> str:
    return f"{dist.name} {dist.version}"
