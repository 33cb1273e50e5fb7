"""Requirements between installed distributions, for the environment that is inspected."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envdoctor.probes.distributions import normalised
from envdoctor.requirement import InvalidRequirementError, Requirement, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from envdoctor.facts import Distribution, DistributionsFact, HostFact, InterpreterFact

RequiredPackages = dict[str, tuple[Requirement, str]]
"""By normalised name: the requirement and the name of the distribution that states it."""


def marker_environment(interpreter: InterpreterFact, host: HostFact) -> dict[str, str]:
    """Return the values of PEP 508 markers in the inspected environment (Linux, CPython)."""
    parts = interpreter.version.split(".")
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": interpreter.version,
        "os_name": "posix",
        "platform_machine": host.machine,
        "platform_python_implementation": "CPython",
        "platform_release": host.kernel,
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": interpreter.version,
        "python_version": ".".join(parts[:2]),
        "sys_platform": "linux",
    }


def cuda_requirements_of(
    dist: Distribution, environment: dict[str, str], *, extras: frozenset[str] = frozenset()
) -> Iterator[tuple[str, Requirement]]:
    """Yield what a distribution requires of torch and its CUDA packages, with the given extras."""
    yield from requirements_of(dist, environment, wanted=decides_cuda, extras=extras)


def requirements_of(
    dist: Distribution,
    environment: dict[str, str],
    *,
    wanted: Callable[[str], bool],
    extras: frozenset[str] = frozenset(),
) -> Iterator[tuple[str, Requirement]]:
    """Yield what a distribution requires of the wanted packages, with the given extras.

    Lines that are no valid requirement are left out: installers refuse them as well.

    Returns:
        Pairs of normalised name and requirement.
    """
    lines = [
        (name, line)
        for line in dist.requires
        # most lines are for extras that nobody asked for; parsing them costs more than all else
        if wanted(name := name_of(line)) and (extras or "extra ==" not in line or " or " in line)
    ]
    for name, line in lines:
        try:
            requirement = parse(line)
            if requirement.applies(environment, extras or {""}):
                yield name, requirement
        except InvalidRequirementError:
            continue


def name_of(line: str) -> str:
    """Return the normalised name that a Requires-Dist line begins with; empty if it has none."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line)
    return normalised(match[1]) if match else ""


def required_cuda_packages(
    installed: DistributionsFact, environment: dict[str, str]
) -> RequiredPackages:
    """Return the CUDA packages that torch requires, directly or through another of them.

    `cuda-toolkit` holds no files: its extras stand for `nvidia-*` pins, so they are followed.
    """
    found: RequiredPackages = {}
    torch = installed.find("torch")
    queue = [(torch, frozenset[str]())] if torch else []
    while queue:
        dist, extras = queue.pop()
        for name, requirement in cuda_requirements_of(dist, environment, extras=extras):
            if name in found or name == "torch":
                continue
            found[name] = (requirement, dist.name)
            if target := installed.find(name):
                queue.append((target, frozenset(requirement.extras)))
    return found


def decides_cuda(name: str) -> bool:
    """Tell whether a normalised name is torch or one of the packages that carry its CUDA side."""
    return name.startswith(("nvidia-", "cuda-")) or name in {"torch", "triton", "pytorch-triton"}


def library_stem(name: str) -> str:
    """Return a package's name without its CUDA suffix: `nvidia-cudnn-cu12` is `nvidia-cudnn`."""
    stem, dash, suffix = name.rpartition("-cu")
    return stem if dash and suffix.isdigit() else name
