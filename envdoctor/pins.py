"""What installed packages require of torch and of what is built with it, and which of it holds."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING

from envdoctor.compatibility import strays
from envdoctor.requirements import (
    decides_cuda,
    required_cuda_packages,
    requirements_of,
)
from envdoctor.value import value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from envdoctor.facts import Distribution, DistributionsFact
    from envdoctor.requirement import Requirement

BUILT_WITH_TORCH = frozenset({"torchvision", "torchaudio", "xformers", "flash-attn", "torchao"})
"""Packages that are compiled against one torch, by normalised name."""


@value
class Pin:
    """One requirement of an installed package on torch or what is built with it.

    Args:
        dist: Who states it.
        name: Normalised name of what it is on.
        requirement: As stated.
        found: The installed version; empty if it is not installed.
    """

    dist: Distribution
    name: str
    requirement: Requirement
    found: str

    @property
    def text(self) -> str:
        """The requirement without marker, such as `torch==2.9.0`."""
        return self.requirement.text

    @property
    def exact_version(self) -> str:
        """The one version it allows, such as `2.9.0`; empty if it allows several."""
        versions = [
            item.version
            for item in self.requirement.clauses
            if item.operator in {"==", "==="} and not item.version.endswith(".*")
        ]
        return versions[0] if versions else ""

    @property
    def holds(self) -> bool:
        """True if what is installed satisfies it."""
        return bool(self.found) and self.requirement.is_met_by(self.found)


def matters(name: str) -> bool:
    """Tell whether requirements on a package are looked at, by its normalised name."""
    return decides_cuda(name) or name in BUILT_WITH_TORCH


def read_pins(installed: DistributionsFact, environment: dict[str, str]) -> Iterator[Pin]:
    """Yield what installed packages require of torch and what is built with it.

    What torch and its CUDA packages require of each other is left out: other checks look at it.
    """
    required = required_cuda_packages(installed, environment)
    for dist in installed.distributions:
        if decides_cuda(dist.name) or dist is not installed.find(dist.name):
            continue
        for name, requirement in requirements_of(dist, environment, wanted=matters):
            # A package that breaks torch's own pin is the culprit, whoever else minds.
            if name in required and not required[name][0].is_met_by(installed.version_of(name)):
                continue
            yield Pin(dist, name, requirement, installed.version_of(name))


def is_engine(name: str) -> bool:
    """Tell whether a package is a serving engine or belongs to one, by its normalised name."""
    return any(fnmatch(name, stray.name) for stray in strays())


def conflicting_engines(pins: Sequence[Pin]) -> tuple[Pin, Pin] | None:
    """Return the torch pins of two engines that cannot both hold, the broken one first.

    Returns:
        None if there are no two; of several, the first broken with the first that excludes it.
    """
    engines = [pin for pin in pins if pin.name == "torch" and is_engine(pin.dist.name)]
    for broken in engines:
        for other in engines:
            if not broken.holds and _exclude(broken, other):
                return broken, other
    return None


def _exclude(one: Pin, other: Pin) -> bool:
    """Tell whether two pins rule each other out, as far as one of them is exact."""
    return any(
        exact.exact_version and not free.requirement.is_met_by(exact.exact_version)
        for exact, free in ((one, other), (other, one))
    )
