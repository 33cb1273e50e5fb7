"""What envdoctor does not judge yet, told from facts, so that silence is never read as health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.facts import DistributionsFact, HostFact, TorchBuildFact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.facts import FactSet

_JUDGED_MACHINES = frozenset({"x86_64", "amd64"})


def not_judged(facts: FactSet) -> list[str]:
    """Return one sentence for each thing that no check speaks of, and for each that was unreadable.

    Args:
        facts: One snapshot.
    """
    found: list[str] = []
    for fact in facts:
        match fact:
            case HostFact():
                found += _host(fact)
            case DistributionsFact():
                found += _installer(fact)
            case TorchBuildFact():
                found += _build(fact)
            case _:
                pass
    reasons = facts.unavailable.values()
    # Where one fact could not be read, those built on it give the same reason.
    return list(dict.fromkeys([*found, *(why.reason for why in reasons)]))


def is_judged(facts: FactSet) -> bool:
    """Tell whether there is anything that checks can say of this system."""
    host = facts.get(HostFact)
    return not isinstance(host, HostFact) or host.system == "Linux"


def _host(host: HostFact) -> Iterator[str]:
    if host.system != "Linux":
        yield f"{host.system}: envdoctor judges Linux only"
    elif host.machine not in _JUDGED_MACHINES:
        yield f"{host.machine}: wheels, pins and paths are known for x86_64 only"
    if host.is_wsl:
        yield "WSL2: the driver is that of Windows; how its libraries are reached is not looked at"


def _installer(installed: DistributionsFact) -> Iterator[str]:
    torch = installed.find("torch")
    if torch and torch.installer == "conda":
        yield (
            f"torch {torch.version} was installed by conda: its CUDA libraries are conda packages, "
            "which are not looked at"
        )


def _build(torch: TorchBuildFact) -> Iterator[str]:
    tag = (torch.version or "").partition("+")[2]
    if torch.hip or tag.startswith("rocm"):
        yield f"torch {torch.version} is a ROCm build: AMD's driver and libraries are not looked at"
    elif tag.startswith("xpu"):
        yield f"torch {torch.version} is an XPU build: Intel's libraries are not looked at"
