"""Readings of the machine: host, variables, NVIDIA hardware and driver."""

from __future__ import annotations

from dataclasses import dataclass

from envdoctor.facts.fact import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFact(Fact):
    """The machine around the environment; None where the kernel does not say."""

    machine: str
    kernel: str
    glibc: str | None
    shm_bytes: int | None
    disk_free_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablesFact(Fact):
    """Environment variables that change how Python, the loader, CUDA or torch behave.

    Args:
        values: Pairs of name and value, sorted by name; a variable that is not set is not listed.
    """

    values: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str | None:
        """Return a variable's value, or None if it is not set."""
        return dict(self.values).get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as NVML shows it; capability is `major.minor`."""

    index: int
    name: str
    capability: str
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaFact(Fact):
    """NVIDIA hardware and driver.

    Args:
        num_devices: Devices seen in sysfs or /dev, whether or not a driver serves them.
        driver: Driver version such as `580.65.06`; None if no driver answers.
        cuda: Highest CUDA version the driver serves, such as `13.0`.
        gpus: As NVML lists them.
        error: What NVML said when it failed; empty otherwise.
    """

    num_devices: int
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    error: str = ""
