"""Checks of the driver's CUDA library, `libcuda.so.1`, as the loader finds it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envdoctor.check import check
from envdoctor.facts import (
    ContainerFact,
    FoundLibrary,
    LoaderFact,
    NvidiaFact,
    TorchBuildFact,
    VariablesFact,
)
from envdoctor.search_path import removal_of
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Skipped, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
_CONSUMER_GPU = re.compile(r"GeForce|TITAN|Quadro")
_VERSION = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)$")


@check(requires=["torch-not-installed", "no-nvidia-driver"])
def libcuda_missing(
    loader: LoaderFact,
    nvidia: NvidiaFact,
    torch_build: TorchBuildFact,
    variables: VariablesFact,
    container: ContainerFact,
) -> Verdict:
    """The driver works, but its CUDA library is not on the loader's path.

    ## What it checks
    Whether a search for `libcuda.so.1` finds anything on a machine whose NVIDIA driver answers.

    ## Why it matters
    `nvidia-smi` works and torch says that there is no NVIDIA driver: the two use different
    libraries. A container gets libcuda only with the `compute` capability.

    ## Remedy
    Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility (or `all`). Outside a
    container install the compute library of the driver that is loaded.

    ## Source
    NVIDIA Container Toolkit, "Driver capabilities"; NVIDIA/nvidia-docker#533.
    """
    if not torch_build.cuda or loader.drivers:
        return Ok(f"libcuda.so.1 is {loader.drivers[0].path}" if loader.drivers else "not needed")
    granted = variables.get(_CAPABILITIES)
    lacks_compute = granted is not None and not {"all", "compute"} & set(granted.split(","))
    in_container = bool(container.kind) or granted is not None
    if in_container:
        remedy = Remedy(
            kind="container-option",
            text=f"Start the container anew with `--gpus all` and `-e {_CAPABILITIES}="
            "compute,utility`: the driver on the host is fine, only its CUDA library was not "
            "mounted.",
        )
    else:
        remedy = Remedy(
            kind="install-system-package",
            text=f"Install the compute library of driver {nvidia.driver} on the host.",
        )
    return Problem(
        culprit=_CAPABILITIES if lacks_compute else "libcuda.so.1",
        owner="user" if in_container else "admin",
        message=f"driver {nvidia.driver} answers, but libcuda.so.1 is found nowhere"
        + (f": {_CAPABILITIES} is {granted!r}, without compute" if lacks_compute else ""),
        evidence=(
            Evidence(subject="libcuda.so.1", expected="on the loader's path", found="nowhere"),
            Evidence(subject=_CAPABILITIES, expected="compute,utility", found=granted or "not set"),
        ),
        remedy=remedy,
    )


@check(requires=["torch-not-installed", "no-nvidia-driver"])
def libcuda_is_stub(loader: LoaderFact, variables: VariablesFact) -> Verdict:
    """The CUDA library that is found is the toolkit's stub, which only serves to link programs.

    ## What it checks
    Whether the `libcuda.so.1` that is found first lies in a `stubs` folder or is a link into one.

    ## Why it matters
    The stub answers every call with an error: torch sees no GPU, or says "CUDA driver is a stub
    library".

    ## Remedy
    Take the `stubs` folder off LD_LIBRARY_PATH or the loader's configuration.

    ## Source
    CUDA Installation Guide, "stubs"; cudaErrorStubLibrary in driver_types.h.
    """
    first = next(iter(loader.drivers), None)
    if first is None:
        return Skipped("libcuda.so.1 is found nowhere")
    if not is_stub(first):
        return Ok(f"libcuda.so.1 is {first.path}")
    removal = removal_of([first], variables)
    real = next((item for item in loader.drivers if not is_stub(item)), None)
    return Problem(
        culprit=removal.culprit,
        owner=removal.owner,
        message=f"{first.path} is a stub for linking and is found before the driver's libcuda",
        evidence=(
            Evidence(
                subject="libcuda.so.1",
                expected=real.path if real else "the driver's file",
                found=f"{first.path} ({first.source or first.via})",
            ),
        ),
        remedy=removal.remedy,
    )


@check(requires=["torch-not-installed", "no-nvidia-driver", "libcuda-is-stub"])
def libcuda_shadowed(
    loader: LoaderFact, nvidia: NvidiaFact, variables: VariablesFact, container: ContainerFact
) -> Verdict:
    """A CUDA library of another version is found before that of the loaded driver.

    ## What it checks
    The version in the name of the `libcuda.so.1` that is found first, against the loaded driver. A
    newer one from a `compat` folder is forward compatibility, which data-centre GPUs allow.

    ## Why it matters
    CUDA cannot start: error 803 (driver and library do not fit) or 804 (forward compatibility on
    hardware without it). Driver and torch are fine; only the order of the search is not.

    ## Remedy
    Take the `compat` folder off the loader's path; it is of use only with a driver older than it.

    ## Source
    NVIDIA CUDA Compatibility, "Forward compatibility"; gpustack/gpustack#4678.
    """
    first = next(iter(loader.drivers), None)
    found = version_of(first) if first else None
    if first is None or found is None or nvidia.driver is None:
        return Skipped("the version of libcuda.so.1 cannot be told")
    if found == nvidia.driver:
        return Ok(f"libcuda.so.1 is the driver's own, {found}")
    is_compat = "/compat" in first.path
    is_newer = _key(found) > _key(nvidia.driver)
    consumer = without_forward_compatibility(nvidia)
    if is_compat and is_newer and not consumer:
        return Ok(f"forward compatibility: libcuda {found} on driver {nvidia.driver}")
    own = next((item for item in loader.drivers if version_of(item) == nvidia.driver), None)
    if own is None and not is_compat:
        return _lone(first, found, nvidia, container)
    removal = removal_of([first], variables)
    why = f"{consumer[0]} allows no forward compatibility" if is_newer and consumer else "error 803"
    return Problem(
        culprit=removal.culprit,
        owner=removal.owner,
        message=f"{first.path} is libcuda {found}, found before that of driver {nvidia.driver} "
        f"because of {first.source or first.via}: CUDA cannot start ({why}); driver and torch are "
        "fine",
        evidence=_evidence(loader.drivers, nvidia),
        remedy=removal.remedy,
    )


def _lone(first: FoundLibrary, found: str, nvidia: NvidiaFact, container: ContainerFact) -> Problem:
    """Judge a library of another version where that of the driver is nowhere."""
    in_container = bool(container.kind)
    return Problem(
        culprit=first.path,
        owner="image" if in_container else "admin",
        message=f"{first.path} is libcuda {found}, but driver {nvidia.driver} is loaded: CUDA "
        "cannot start (error 803)",
        evidence=_evidence([first], nvidia),
        remedy=Remedy(
            kind="container-option",
            text="Create the container anew with its GPUs; take driver libraries out of the image.",
        )
        if in_container
        else Remedy(kind="reboot", text="Reboot, so that the installed driver is loaded."),
    )


def _evidence(drivers: Sequence[FoundLibrary], nvidia: NvidiaFact) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            subject=item.path,
            expected=f"libcuda {nvidia.driver}",
            found=f"libcuda {version_of(item) or 'of unknown version'} ({item.source or item.via})",
        )
        for item in drivers
    )


def without_forward_compatibility(nvidia: NvidiaFact) -> list[str]:
    """Return the names of the GPUs that forward compatibility is not for."""
    return [gpu.name for gpu in nvidia.gpus if _CONSUMER_GPU.search(gpu.name)]


def is_stub(found: FoundLibrary) -> bool:
    """Tell whether a `libcuda.so.1` is a toolkit's stub: only there `libcuda.so` is a file."""
    return "/stubs/" in found.path or found.target == "libcuda.so"


def version_of(found: FoundLibrary) -> str | None:
    """Return the driver version that a file's name tells."""
    match = _VERSION.search(found.target)
    return match[1] if match else None


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
