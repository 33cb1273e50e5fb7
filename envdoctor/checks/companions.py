"""Checks of packages that are compiled against torch or against each other."""

from __future__ import annotations

import re

from envdoctor.check import check, problems
from envdoctor.compatibility import companion_versions
from envdoctor.facts import (
    CompanionBuild,
    CompanionBuildsFact,
    Distribution,
    DistributionsFact,
    PolicyFact,
    TorchBuildFact,
    VariablesFact,
)
from envdoctor.torch_index import index_option, public_version
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

_FLASHINFER = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
_BYPASS = "FLASHINFER_DISABLE_VERSION_CHECK"
_STABLE_SINCE = {"torchvision": (0, 29), "torchaudio": (2, 11)}
"""First minor releases on torch's stable ABI, which no longer need exactly one torch."""

_AUDIO_BY_MAJOR = (2, 11, 1)
"""The first torchaudio that runs with another minor version of CUDA than torch's."""

_SEVERITIES = {"xformers": Severity.INFO}
"""xformers goes on without its own kernels; the others refuse to be imported."""


@check(requires=["requirement-not-met"])
def companion_for_another_torch(
    companions: CompanionBuildsFact,
    torch_build: TorchBuildFact,
    installed: DistributionsFact,
    policy: PolicyFact,
) -> Verdict:
    """torchvision, torchaudio or xformers was built for another torch.

    ## What it checks
    What `version.py` of torchvision and torchaudio and `cpp_lib.json` of xformers say about their
    build, against the installed torch: its CUDA version and, by a table of pairs, its release.

    ## Why it matters
    Their METADATA does not name the CUDA build, so `+cu128` beside a torch `+cu130` looks
    satisfied; torchvision and torchaudio then refuse to be imported, or lack their operators
    ("torchvision::nms does not exist"). xformers goes on without its own kernels: a note.

    ## Remedy
    Install the release and build that belong to the installed torch.

    ## Source
    torchvision/extension.py 0.26 and 0.29.1, torchaudio/_extension/utils.py 2.11.0 and 2.11.1,
    xformers/_cpp_lib.py, read 2026-11-29.
    """
    if not companions.builds:
        return Skipped("none of torchvision, torchaudio, xformers is installed")
    found = [
        problem
        for build in companions.builds
        if (problem := _built_otherwise(build, torch_build, installed, policy))
    ]
    names = ", ".join(build.name for build in companions.builds)
    return problems(found, Ok(f"{names} fit torch {torch_build.version}"))


def _built_otherwise(
    build: CompanionBuild,
    torch_build: TorchBuildFact,
    installed: DistributionsFact,
    policy: PolicyFact,
) -> Problem | None:
    torch = torch_build.version or ""
    wanted = companion_versions().get(public_version(torch), {}).get(build.name, "")
    expected = f"CUDA {torch_build.cuda}" if torch_build.cuda else "no CUDA"
    if build.cuda and _compared_cuda(build, build.cuda) != _compared_cuda(build, torch_build.cuda):
        what, severity = f"built for CUDA {build.cuda}", _SEVERITIES.get(build.name, Severity.ERROR)
    elif "+cpu" in build.version and torch_build.cuda:
        what, severity = "a CPU build", Severity.WARNING
    elif wanted and _minor(build.version) != _minor(wanted) and _is_tied(build, wanted):
        expected, what, severity = wanted, f"{build.version}, for another torch", Severity.ERROR
    else:
        return None
    version = wanted or installed.version_of(build.name)
    return Problem(
        culprit=build.name,
        severity=severity,
        message=f"{build.name} is {what}; torch is {torch}",
        evidence=(Evidence(subject=build.path, expected=expected, found=what),),
        remedy=Remedy(
            kind="install-matching-pair",
            text=f"Install the {build.name} that belongs to torch {torch}.",
            commands=(f"{policy.pip_install} {index_option(torch)}{build.name}=={version}",),
        ),
    )


def _compared_cuda(build: CompanionBuild, cuda: str | None) -> str:
    """Return the part of a CUDA version that has to be the same: torchaudio compared all of it."""
    exact = build.name == "torchaudio" and _numbers(build.version) < _AUDIO_BY_MAJOR
    return (cuda or "") if exact else (cuda or "").partition(".")[0]


def _is_tied(build: CompanionBuild, wanted: str) -> bool:
    """Tell whether a release works with one torch only; later ones use torch's stable ABI."""
    stable = _STABLE_SINCE.get(build.name, (0, 0))
    return min(_minor(build.version), _minor(wanted)) < stable


@check()
def flashinfer_versions_differ(
    installed: DistributionsFact,
    variables: VariablesFact,
    torch_build: TorchBuildFact,
    policy: PolicyFact,
) -> Verdict:
    """FlashInfer's packages have different versions.

    ## What it checks
    The versions of flashinfer-python, flashinfer-cubin and flashinfer-jit-cache against each other,
    without local tags; the CUDA in such a tag against torch's; and whether
    `FLASHINFER_DISABLE_VERSION_CHECK` hides a difference.

    ## Why it matters
    The compiled kernels of one release are called by the Python code of another: missing cubins and
    illegal memory accesses. FlashInfer refuses to start then, unless the variable says otherwise.

    ## Remedy
    Install the same version of all three and unset the variable.

    ## Source
    flashinfer/jit/env.py, read 2026-11-29; lightseekorg/tokenspeed#284.
    """
    dists = [dist for name in _FLASHINFER if (dist := installed.find(name))]
    if not dists:
        return Skipped("flashinfer is not installed")
    leader = dists[0]
    odd = [dist for dist in dists if public_version(dist.version) != public_version(leader.version)]
    odd += [dist for dist in dists if dist not in odd and _other_cuda(dist, torch_build)]
    if not odd:
        return Ok(f"flashinfer {leader.version} agrees with itself")
    hidden = variables.get(_BYPASS) not in (None, "", "0")
    tail = f"; {_BYPASS} hides it" if hidden else ""
    cuda = (torch_build.cuda or "").replace(".", "")
    wanted = " ".join(f"{dist.name}=={_aligned(dist, leader, cuda)}" for dist in odd)
    return Problem(
        culprit=odd[0].name,
        message=f"{_named(odd[0])} does not fit {_named(leader)} "
        f"(torch {torch_build.version}){tail}",
        evidence=(
            *(
                Evidence(subject=dist.name, expected=leader.version, found=dist.version)
                for dist in dists
            ),
            *([Evidence(subject=_BYPASS, expected="unset", found="set")] if hidden else []),
        ),
        remedy=Remedy(
            kind="align-versions",
            text="Install the same version of all; builds with a +cu tag are in FlashInfer's own "
            "index, which the installer has to be given.",
            commands=(
                f"{policy.pip_install} {wanted}",
                *([f"unset {_BYPASS}"] if hidden else []),
            ),
        ),
    )


def _other_cuda(dist: Distribution, torch_build: TorchBuildFact) -> bool:
    match = re.search(r"\+cu(\d+)\d$", dist.version)
    return bool(match and torch_build.cuda and match[1] != torch_build.cuda.partition(".")[0])


def _aligned(dist: Distribution, leader: Distribution, cuda: str) -> str:
    """Return the version that a package should have, with a tag of torch's CUDA if it has one."""
    has_tag = "+cu" in dist.version
    return (
        f"{public_version(leader.version)}+cu{cuda}"
        if has_tag and cuda
        else public_version(leader.version)
    )


def _named(dist: Distribution) -> str:
    return f"{dist.name} {dist.version}"


def _minor(version: str) -> tuple[int, ...]:
    return _numbers(version)[:2]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", public_version(version)))
