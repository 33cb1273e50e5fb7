"""Checks of what torch's metadata says against what its files are."""

from __future__ import annotations

from pathlib import PurePath

from envdoctor.check import check
from envdoctor.facts import (
    DistributionsFact,
    PolicyFact,
    RecordsFact,
    TorchBuildFact,
)
from envdoctor.torch_index import index_option, is_published, public_version
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Skipped, Verdict


@check(requires=["torch-not-installed", "module-shadowed"])
def torch_version_disagrees(
    torch_build: TorchBuildFact,
    installed: DistributionsFact,
    records: RecordsFact,
    policy: PolicyFact,
) -> Verdict:
    """Torch's metadata, its code and its libraries are of different builds.

    ## What it checks
    The version in METADATA against `torch/version.py` (its local tag only where METADATA has one,
    since the package index of PyPI leaves it out); the wheel variant in `variant.json`, if there is
    one, against the CUDA version in `version.py`; and that against `libtorch_cuda.so`.

    ## Why it matters
    Two builds were laid over each other, or an installation was cut short. Installers and libraries
    decide by the metadata, Python runs the files.

    ## Remedy
    Reinstall torch by force, in the build that is wanted.

    ## Source
    METADATA and version.py of the torch wheels 2.9.1 to 2.15.0, read 2026-11-29; PEP 825 (draft).
    """
    if not any(dist.name == "torch" for dist in installed.distributions):
        return _without_metadata(torch_build, installed, policy)
    # A file that is not as RECORD lists it is told by the check of files.
    told = {file.path for dist in records.distributions for file in dist.differing}
    if f"{torch_build.path}/version.py" in told:
        return Skipped("version.py is not as torch's RECORD lists it")
    evidence = _version_evidence(torch_build, installed, records)
    torch = installed.find("torch")
    if torch and torch.installer in {"pip", "uv"}:  # conda splits torch into packages
        evidence = evidence or _build_evidence(torch_build, told)
    if evidence is None:
        return Ok(f"metadata, code and libraries are of torch {torch_build.version}")
    version = torch_build.version or ""
    return Problem(
        culprit="torch",
        message=f"torch is mixed of different builds: {evidence.subject} says {evidence.found}, "
        f"{torch_build.path}/version.py says {evidence.expected}",
        evidence=(evidence,),
        remedy=_reinstall_torch(version, policy),
    )


def _without_metadata(
    torch_build: TorchBuildFact, installed: DistributionsFact, policy: PolicyFact
) -> Verdict:
    if "torch" in installed.egg_infos:
        return Skipped("torch has an .egg-info, which states no build")
    where = str(PurePath(torch_build.path or "").parent)
    return Problem(
        culprit="torch",
        message=f"torch {torch_build.version} has no dist-info in {where}: its metadata is gone, "
        "so installers and libraries take it for not installed",
        evidence=(Evidence(subject=where, expected="torch-*.dist-info", found="none"),),
        remedy=_reinstall_torch(torch_build.version or "", policy),
    )


def _reinstall_torch(version: str, policy: PolicyFact) -> Remedy:
    """Reinstall what the profile wants or, without one, the build whose code is there."""
    if policy.torch_version and policy.variant:
        version = f"{policy.torch_version}+{policy.variant}"
    if not is_published(version):
        return Remedy(
            kind="reinstall-package",
            text=f"torch {version} was built from source, as vendors' images have it: no package "
            "index holds it. Take it from where it came, or build a new environment.",
            commands=(f"envdoctor build --profile {policy.profile or 'cpu'}",),
        )
    return Remedy(
        kind="reinstall-package",
        text="Reinstall torch by force, in the build that is wanted.",
        commands=(f"{policy.pip_install} {index_option(version)}torch=={public_version(version)}",),
    )


def _version_evidence(
    torch_build: TorchBuildFact, installed: DistributionsFact, records: RecordsFact
) -> Evidence | None:
    """Return the METADATA that names another version; None if one of them agrees.

    Of one that was edited the version before counts; `package-metadata-edited` tells of it.
    """
    stated = [dist for dist in installed.distributions if dist.name == "torch"]
    originals = {files.path: files.original_version for files in records.distributions}
    code = torch_build.version or ""
    if any(_same_build(originals.get(dist.path) or dist.version, code) for dist in stated):
        return None
    return Evidence(subject=f"{stated[0].path}/METADATA", expected=code, found=stated[0].version)


def _same_build(stated: str, code: str) -> bool:
    return stated == code or ("+" not in stated and stated == public_version(code))


def _build_evidence(torch_build: TorchBuildFact, told: set[str]) -> Evidence | None:
    library = f"{torch_build.path}/lib/libtorch_cuda.so"
    cuda = f"CUDA {torch_build.cuda}" if torch_build.cuda else "no CUDA"
    gpu_build = torch_build.cuda or torch_build.hip or torch_build.xpu
    if torch_build.has_cuda_library and not gpu_build:
        return Evidence(subject=library, expected=cuda, found="code for CUDA")
    if torch_build.cuda and not torch_build.has_cuda_library and library not in told:
        return Evidence(subject=library, expected=cuda, found="no such library")
    wants_cuda = any(item.startswith("nvidia ::") for item in torch_build.variant)
    if torch_build.variant and wants_cuda != bool(torch_build.cuda):
        found = "; ".join(torch_build.variant)
        return Evidence(subject="variant.json", expected=cuda, found=found)
    return None
