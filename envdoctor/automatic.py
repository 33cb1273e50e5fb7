"""Choose a bundled profile by the driver and the GPUs of this machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.checks.driver import driver_key
from envdoctor.checks.gpu import runs
from envdoctor.compatibility import official_arch
from envdoctor.facts import FactSet
from envdoctor.probes.nvidia import read_nvidia
from envdoctor.probes.subject import Subject
from envdoctor.profile import known_names, load_profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from envdoctor.facts import NvidiaFact
    from envdoctor.profile import Profile

_CPU = "cpu"
_FIRST = "cu128"
"""The trainer was run with it on a GPU; the other CUDA profiles were built and checked only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was chosen, and why.

    Args:
        profile: Name of the profile.
        reasons: Why it, after why none of those that would have come first.
    """

    profile: str
    reasons: tuple[str, ...]


def for_this_machine(variables: Mapping[str, str]) -> Choice:
    """Return the choice for this machine.

    Args:
        variables: Environment variables of this process.
    """
    subject = Subject(prefix=Path(sys.prefix), variables=variables)
    profiles = [load_profile(name) for name in known_names()]
    return pick(read_nvidia(subject, FactSet([])), profiles)


def pick(nvidia: NvidiaFact, profiles: Sequence[Profile]) -> Choice:
    """Return the first CUDA profile that the driver and all GPUs can run, else the CPU's.

    The one that the trainer was tried with comes first, then the newest CUDA.

    Args:
        nvidia: Driver and GPUs.
        profiles: To choose from.
    """
    if not nvidia.num_devices:
        return Choice(profile=_CPU, reasons=("cpu: there is no NVIDIA GPU here",))
    if nvidia.driver is None:
        reason = f"cpu: {nvidia.num_devices} NVIDIA GPUs are here, but no driver answers"
        return Choice(profile=_CPU, reasons=(reason,))
    reasons: list[str] = []
    order = sorted(profiles, key=lambda one: (one.name == _FIRST, _cuda(one)), reverse=True)
    for profile in order:
        if profile.torch.variant == _CPU:
            continue
        refusal = _refusal(nvidia, profile)
        if not refusal:
            gpus = ", ".join(sorted({gpu.name for gpu in nvidia.gpus})) or "GPUs unknown"
            found = f"driver {nvidia.driver} and {gpus} run torch {profile.torch.version}"
            return Choice(profile=profile.name, reasons=(*reasons, f"{profile.name}: {found}"))
        reasons.append(f"not {profile.name}: {refusal}")
    return Choice(profile=_CPU, reasons=(*reasons, "cpu: no CUDA profile runs here"))


def _refusal(nvidia: NvidiaFact, profile: Profile) -> str:
    """Return why a profile does not run on the machine; empty if it does."""
    minimum = profile.gpu.driver_min
    if minimum and driver_key(nvidia.driver) < driver_key(minimum):
        return f"driver {nvidia.driver} is older than {minimum}"
    release = tuple(int(part) for part in profile.torch.version.split("."))
    arch = official_arch(".".join(map(str, _cuda(profile))), release)
    lacking = [gpu for gpu in nvidia.gpus if arch and not runs(gpu, arch)]
    if lacking:
        first = lacking[0]
        return (
            f"GPU {first.index} ({first.name}) has capability {first.capability}, none of its own"
        )
    return ""


def _cuda(profile: Profile) -> tuple[int, ...]:
    """Return the CUDA version of a profile; empty for the CPU."""
    digits = profile.torch.variant.removeprefix("cu")
    return (int(digits[:-1]), int(digits[-1])) if digits.isdigit() else ()
