"""Readings of one environment on one machine, as plain values.

Absence is a fact (`TorchBuildFact(version=None)`); `Unavailable` means that a probe could not look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Base of all facts: frozen, comparable, JSON-able."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A probe could not read its fact."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFact(Fact):
    """What the environment is wanted for, from the command line and the profile.

    Args:
        profile: Name of the profile; None if none was named.
        torch_version: Version of torch that the profile wants, without local tag.
        variant: `cpu` or `cu128` as the profile writes it; None if none was named.
        arch: GPU architectures the build must hold, such as `sm_90`.
        forbid: Globs over normalised distribution names that must not be installed.
        driver_min: Lowest driver version the profile accepts.
        expect_gpu: True if a GPU must be there, False if none is wanted, None if unsaid.
        pip_install: Command that reinstalls packages into it; `NAME==VERSION` follows.
        pip_uninstall: Command that uninstalls packages from it; names follow.
    """

    profile: str | None = None
    torch_version: str | None = None
    variant: str | None = None
    arch: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    driver_min: str | None = None
    expect_gpu: bool | None = None
    pip_install: str = "pip install --force-reinstall --no-deps"
    pip_uninstall: str = "pip uninstall -y"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFact(Fact):
    """The machine around the environment; None where the kernel does not say."""

    machine: str
    kernel: str
    glibc: str | None
    shm_bytes: int | None
    disk_free_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterFact(Fact):
    """A Python environment, found by reading files, not by running it.

    Args:
        prefix: The environment's folder.
        python: Its interpreter; None if `bin/python` is missing or a dead link.
        version: Major, minor (and micro where known) version, such as `3.11` or `3.11.7`.
        is_venv: True if `pyvenv.cfg` makes it a virtual environment.
        site_packages: Existing folders of installed packages, in import order.
    """

    prefix: str
    python: str | None
    version: str
    is_venv: bool
    site_packages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One installed distribution, from its `.dist-info` folder.

    Args:
        name: Normalised name (PEP 503).
        version: From METADATA; empty if METADATA has none.
        path: The `.dist-info` folder.
        requires: Requires-Dist lines as written.
        installer: From INSTALLER; empty if there is none.
        has_record: True if a RECORD file is there.
    """

    name: str
    version: str
    path: str
    requires: tuple[str, ...] = ()
    installer: str = ""
    has_record: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionsFact(Fact):
    """All that is installed.

    Args:
        distributions: In import order, so the first of a name is the one Python sees.
        leftovers: Paths of `~name` folders that an interrupted pip left.
        modules: Top-level module names and their paths, without those of dist-info folders.
    """

    distributions: tuple[Distribution, ...]
    leftovers: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()

    def find(self, name: str) -> Distribution | None:
        """Return the distribution that Python sees under a normalised name."""
        return next((dist for dist in self.distributions if dist.name == name), None)

    def version_of(self, name: str) -> str:
        """Return the version of the distribution that Python sees; empty if there is none."""
        dist = self.find(name)
        return dist.version if dist else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingFile:
    """A recorded file that is not on disk as recorded.

    Args:
        path: Absolute path.
        expected: What RECORD or its kind promises, such as `1234 bytes`.
        found: What is there, such as `missing`, `0 bytes` or `a folder`.
    """

    path: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionFiles:
    """The recorded files of one distribution against the disk.

    Args:
        name: Normalised name.
        num_files: Rows of RECORD that were compared.
        num_libraries: How many of them are shared objects.
        differing: Those that are not as recorded.
        error: Why RECORD could not be read; empty if it could.
    """

    name: str
    num_files: int
    num_libraries: int
    differing: tuple[DifferingFile, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsFact(Fact):
    """Recorded files against the disk, for the distributions that matter."""

    distributions: tuple[DistributionFiles, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedObject:
    """Header facts of one shared object.

    Args:
        path: Absolute path.
        distribution: Normalised name of the distribution whose RECORD lists it.
        machine: ELF machine as `uname -m` spells it; empty if it is no ELF object.
        soname: DT_SONAME; empty if it has none.
        error: Why it is no loadable ELF object; empty if it is one.
    """

    path: str
    distribution: str
    machine: str = ""
    soname: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedObjectsFact(Fact):
    """Shared objects of the NVIDIA packages that are on disk."""

    objects: tuple[SharedObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBuildFact(Fact):
    """What the installed torch was built for, from `torch/version.py` read as text.

    Args:
        path: The torch folder; None if there is none.
        version: `__version__` with its local tag; None if it cannot be told.
        cuda: CUDA version such as `12.8`; None for a build without CUDA.
        hip: ROCm version; None for a build without ROCm.
        arch: GPU architectures compiled in, such as `sm_90`; empty if not found.
    """

    path: str | None
    version: str | None = None
    cuda: str | None = None
    hip: str | None = None
    arch: tuple[str, ...] = ()


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


F = TypeVar("F", bound=Fact)


class FactSet:
    """One snapshot: at most one fact of each kind.

    Args:
        facts: The facts; a later one of the same kind replaces an earlier one.
        unavailable: Kinds that could not be read, with the reason.
    """

    def __init__(
        self, facts: Iterable[Fact], unavailable: dict[type[Fact], Unavailable] | None = None
    ) -> None:
        self._facts = {type(fact): fact for fact in facts}
        self._unavailable = dict(unavailable or {})

    def __iter__(self) -> Iterator[Fact]:
        """Iterate over the facts that were read."""
        return iter(self._facts.values())

    def get(self, kind: type[F]) -> F | Unavailable:
        """Return the fact of a kind, or why there is none."""
        fact = self._facts.get(kind)
        if isinstance(fact, kind):
            return fact
        return self._unavailable.get(kind, Unavailable(f"no {kind.__name__} was read"))

    def need(self, kind: type[F]) -> F:
        """Return the fact of a kind.

        Raises:
            LookupError: It was not read; the message says why.
        """
        fact = self.get(kind)
        if isinstance(fact, Unavailable):
            raise LookupError(fact.reason)  # noqa: TRY004  nothing was found, no type is wrong
        return fact
