"""Readings of binaries: the torch build and shared objects."""

from __future__ import annotations

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
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


@keyword_value
class SharedObjectsFact(Fact):
    """Shared objects of the NVIDIA packages that are on disk."""

    objects: tuple[SharedObject, ...]


@keyword_value
class TorchBuildFact(Fact):
    """What the installed torch was built for, from `torch/version.py` read as text.

    Args:
        path: The torch folder; None if there is none.
        version: `__version__` with its local tag; None if it cannot be told.
        cuda: CUDA version such as `12.8`; None for a build without CUDA.
        hip: ROCm version; None for a build without ROCm.
        arch: GPU architectures compiled in, such as `sm_90`; empty if not found.
        xpu: Version of Intel's runtime; None for a build without it.
        has_cuda_library: True if `libtorch_cuda.so` is there.
        variant: Properties of the wheel variant that was installed, such as
            `nvidia :: cuda_version_lower_bound :: 12.8`; empty if the wheel is no variant.
    """

    path: str | None
    version: str | None = None
    cuda: str | None = None
    hip: str | None = None
    arch: tuple[str, ...] = ()
    xpu: str | None = None
    has_cuda_library: bool = False
    variant: tuple[str, ...] = ()
