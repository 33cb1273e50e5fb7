"""Checks of the torch build itself."""

from __future__ import annotations

import re

from envdoctor.check import check
from envdoctor.facts import (
    DistributionsFact,
    InterpreterFact,
    NvidiaFact,
    OtherGpusFact,
    PolicyFact,
    TorchBuildFact,
)
from envdoctor.torch_index import default_build, index_option
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

_EXACT_TORCH = re.compile(r"torch\s*\(?\s*===?\s*([^\s,;)*]+)\s*\)?\s*(?:;|$)")


@check()
def torch_not_installed(
    torch_build: TorchBuildFact,
    installed: DistributionsFact,
    interpreter: InterpreterFact,
    policy: PolicyFact,
) -> Verdict:
    """Torch is not installed in this environment.

    ## What it checks
    A `torch/version.py` with a readable version lies in the environment's package folders.

    ## Why it matters
    Nothing else can be judged without torch. "Not installed" and "installed but broken" need
    different cures: if the metadata is there and the package folder is not, installers answer
    "already satisfied".

    ## Remedy
    Build an environment from a profile, or reinstall torch if only its metadata is left.

    ## Source
    torch/version.py of the wheels 2.9.1 to 2.15.0, read 2026-11-29.
    """
    if torch_build.version is not None:
        return Ok(f"torch {torch_build.version}")
    dist = installed.find("torch")
    if dist is None and torch_build.path is None:
        profile = policy.profile or "cpu"
        return Problem(
            culprit="torch",
            message=f"torch is not installed in {interpreter.prefix}",
            remedy=Remedy(
                kind="build-environment",
                text="Build an environment that holds torch, or look at another one (--prefix).",
                commands=(f"envdoctor build --profile {profile}",),
            ),
        )
    where = torch_build.path or "the torch folder"
    return Problem(
        culprit="torch",
        message=f"torch is installed but broken: {where} has no readable version.py",
        evidence=(
            Evidence(
                subject=dist.path if dist else where,
                expected="torch/version.py that states __version__",
                found="metadata only" if torch_build.path is None else "no readable version.py",
            ),
        ),
        remedy=Remedy(
            kind="reinstall-package",
            text="Reinstall torch; without force the installer says it is already satisfied.",
            commands=(f"{policy.pip_install} torch{f'=={dist.version}' if dist else ''}",),
        ),
    )


@check(requires=["torch-not-installed"])
def cpu_torch_on_gpu_machine(
    torch_build: TorchBuildFact,
    nvidia: NvidiaFact,
    others: OtherGpusFact,
    installed: DistributionsFact,
    policy: PolicyFact,
) -> Verdict:
    """Torch is a CPU build on a machine with an NVIDIA GPU.

    ## What it checks
    The build's CUDA version in `torch/version.py`, against the NVIDIA devices in sysfs and /dev;
    and which installed package pins torch to this very release, which is how a CUDA build gets
    replaced by a CPU build. A ROCm build is as wrong where no AMD GPU is served; one for Intel GPUs
    gets a warning.

    ## Why it matters
    Such a torch runs, slowly: `torch.cuda.is_available()` is False and nothing says why.

    ## Remedy
    Reinstall torch from a CUDA index, at the version that the other packages pin. A profile whose
    variant is `cpu` says that the CPU is meant.

    ## Source
    astral-sh/uv#17236; oobabooga/textgen#7581.
    """
    if torch_build.cuda:
        return Ok(f"torch {torch_build.version} is a CUDA build")
    if policy.variant == "cpu" or policy.expect_gpu is False:
        return Ok("a CPU build is wanted")
    if nvidia.num_devices == 0:
        return Ok("no NVIDIA device here")
    if torch_build.hip and others.has_amd:
        return Ok("a ROCm build, and an AMD GPU is served")
    kind = "a ROCm" if torch_build.hip else "an Intel GPU" if torch_build.xpu else "a CPU"
    pinning = _pinning_torch(installed)
    because = "".join(f"; {name} requires torch{pin}" for name, pin in pinning)
    return Problem(
        culprit="torch",
        severity=Severity.WARNING if torch_build.xpu else Severity.ERROR,
        message=f"torch {torch_build.version} is {kind} build, but this machine has "
        f"{nvidia.num_devices} NVIDIA device(s){because}",
        evidence=(
            Evidence(
                subject=f"{torch_build.path}/version.py",
                expected="a CUDA version",
                found="cuda = None",
            ),
            *(Evidence(subject=name, found=f"requires torch{pin}") for name, pin in pinning),
        ),
        remedy=_cuda_remedy(torch_build, nvidia, policy),
    )


def _pinning_torch(installed: DistributionsFact) -> list[tuple[str, str]]:
    """Return the packages with an exact pin on torch, and the pin, such as `==2.9.0`."""
    return [
        (f"{dist.name} {dist.version}", f"=={match[1]}")
        for dist in installed.distributions
        for line in dist.requires
        if (match := _EXACT_TORCH.match(line))
    ]


def _cuda_remedy(torch_build: TorchBuildFact, nvidia: NvidiaFact, policy: PolicyFact) -> Remedy:
    """Keep the release, which other packages may pin; change the build."""
    build = default_build(torch_build.version or "")
    served = re.match(r"\d+", nvidia.cuda or "")
    needs = build.partition("+cu")[2][:2]
    if not build or (served and int(served[0]) < int(needs)):
        return Remedy(
            kind="reinstall-from-cuda-index",
            text="Build an environment with a torch for the CUDA that the driver serves.",
            commands=("envdoctor build --profile cu128",),
        )
    return Remedy(
        kind="reinstall-from-cuda-index",
        text="Reinstall the same release of torch from its CUDA index, with what it requires.",
        commands=(f"{policy.pip_add} {index_option(build)}torch=={build}",),
    )


@check(requires=["torch-not-installed"])
def cuda_torch_without_gpu(
    torch_build: TorchBuildFact, nvidia: NvidiaFact, policy: PolicyFact
) -> Verdict:
    """Torch is a CUDA build on a machine without an NVIDIA device.

    ## What it checks
    The build's CUDA version, against the NVIDIA devices in sysfs and /dev.

    ## Why it matters
    Usual and fine on a login node or while an image is built; a surprise where a GPU was expected,
    such as in a container started without `--gpus`.

    ## Remedy
    Nothing, unless a GPU should be here: `--expect-gpu` makes this an error, `--no-gpu` silences
    it.

    ## Source
    Measured on CUDA wheels without a GPU, 2026-11-29.
    """
    if not torch_build.cuda:
        return Skipped("torch is not a CUDA build")
    if nvidia.num_devices or policy.expect_gpu is False:
        return Ok(f"{nvidia.num_devices} NVIDIA device(s)")
    expected = policy.expect_gpu is True
    return Problem(
        culprit="GPU",
        severity=Severity.ERROR if expected else Severity.INFO,
        owner="admin" if expected else "user",
        message=f"torch {torch_build.version} is a CUDA build; this machine has no NVIDIA device",
        evidence=(
            Evidence(subject="/dev/nvidia*, /sys/bus/pci/devices", found="no NVIDIA device"),
        ),
        remedy=Remedy(
            kind="container-option",
            text="If a GPU should be here, give it to the container or take another node.",
        ),
    )


@check(requires=["torch-not-installed"])
def torch_not_of_profile(torch_build: TorchBuildFact, policy: PolicyFact) -> Verdict:
    """Torch is not the version or variant that the profile names.

    ## What it checks
    The version and CUDA version in `torch/version.py`, against the profile.

    ## Why it matters
    The package version does not tell the variant: PyPI's torch 2.10.0 is cu128 and its 2.11.0 is
    cu130, and neither says so in its metadata.

    ## Remedy
    Build the profile's environment anew; switching variants in place leaves mixed libraries.

    ## Source
    torch wheels 2.9.1 to 2.15.0, read 2026-11-29; astral-sh/uv#16368.
    """
    if policy.profile is None:
        return Skipped("no profile was named")
    version = (torch_build.version or "").partition("+")[0]
    found = (version, build_variant(torch_build))
    if found[0] == policy.torch_version and found[1] == policy.variant:
        return Ok(f"torch {version} for {found[1]}, as {policy.profile} wants")
    return Problem(
        culprit="torch",
        message=f"torch is {version} for {found[1]}; profile {policy.profile} wants "
        f"{policy.torch_version} for {policy.variant}",
        evidence=(
            Evidence(
                subject=f"{torch_build.path}/version.py",
                expected=f"{policy.torch_version}+{policy.variant}",
                found=str(torch_build.version),
            ),
        ),
        remedy=Remedy(
            kind="build-environment",
            text="Build the profile's environment.",
            commands=(f"envdoctor build --profile {policy.profile}",),
        ),
    )


def build_variant(torch_build: TorchBuildFact) -> str:
    """Return the variant as profiles write it: `cpu`, `rocm`, `xpu` or `cu128`."""
    if torch_build.cuda:
        return "cu" + torch_build.cuda.replace(".", "")
    if torch_build.xpu:
        return "xpu"
    return "rocm" if torch_build.hip else "cpu"
