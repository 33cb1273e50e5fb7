"""Checks that the CUDA packages which torch requires are installed at their pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.facts import (
    DistributionFiles,
    DistributionsFact,
    HostFact,
    InterpreterFact,
    PolicyFact,
    RecordsFact,
)
from envdoctor.requirements import (
    RequiredPackages,
    marker_environment,
    required_cuda_packages,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict

if TYPE_CHECKING:
    from envdoctor.requirement import Requirement


_PLACEHOLDER = "0.0."
"""How the versions of placeholders begin."""
_FEW_FILES = 20
"""A placeholder has five files or so; nvidia-cuda-cccl, which is headers alone, has 2360."""


@check(requires=["torch-not-installed", "module-shadowed", "namespace-package-closed"])
def required_package_missing(
    installed: DistributionsFact, interpreter: InterpreterFact, host: HostFact, policy: PolicyFact
) -> Verdict:
    """A CUDA package that torch requires is not installed.

    ## What it checks
    torch's Requires-Dist, followed through `cuda-toolkit`, against what is installed.

    ## Why it matters
    `import torch` fails in the loader, naming a library but not the package that should bring it.
    Of the packages `cuda-*` none holds a library that torch loads: they are a warning.

    ## Remedy
    Install the package at the version that torch pins.

    ## Source
    METADATA of the torch wheels 2.9.1 to 2.15.0, read 2026-11-29.
    """
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    if not required:
        return Ok("torch requires no CUDA package")
    missing = [name for name in required if installed.find(name) is None]
    if not missing:
        return Ok(f"all {len(required)} required CUDA packages are installed")
    return _missing(missing, required, policy)


def _missing(names: list[str], required: RequiredPackages, policy: PolicyFact) -> Problem:
    """Tell of all missing packages at once: they left together, and one command brings them."""
    requirement, parent = required[names[0]]
    told = f"{names[0]} is not installed; {parent} requires {requirement.text}"
    if len(names) > 1:
        told = f"{len(names)} of the {len(required)} CUDA packages that torch requires are not "
        told += f"installed: {', '.join(names)}"
    wanted = " ".join(_install_argument(required[name][0]) for name in names)
    # cuda-toolkit holds no file, cuda-bindings is looked for in green contexts and CuTe templates
    is_loaded = any(not name.startswith("cuda-") for name in names)
    return Problem(
        culprit=", ".join(names),
        severity=Severity.ERROR if is_loaded else Severity.WARNING,
        message=told,
        evidence=tuple(
            Evidence(subject=name, expected=required[name][0].text, found="not installed")
            for name in names
        ),
        remedy=Remedy(
            kind="install-pinned-version",
            text=f"Install {'it' if len(names) == 1 else 'them'} at the required version.",
            commands=(f"{policy.pip_install} {wanted}",),
        ),
    )


@check(requires=["torch-not-installed", "module-shadowed", "namespace-package-closed"])
def package_version_not_pinned(
    installed: DistributionsFact,
    records: RecordsFact,
    interpreter: InterpreterFact,
    host: HostFact,
    policy: PolicyFact,
) -> Verdict:
    """A CUDA package has another version than torch pins.

    ## What it checks
    The installed version of each CUDA package that torch requires, against torch's own pin.

    ## Why it matters
    torch was built and tested with exactly these libraries; another cuDNN or Triton fails at run
    time, often only in one operation.

    ## Remedy
    Install the pinned version. If another package wants a different one, the two do not belong in
    one environment.

    ## Source
    METADATA of the torch wheels; coreweave/ml-containers#64.
    """
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    if not required:
        return Ok("torch requires no CUDA package")
    # A placeholder has a wrong version as well; its own check says what it is.
    placeholders = _placeholders(records, required)
    # So does one whose METADATA was edited: what counts is what was installed.
    originals = {files.path: files.original_version for files in records.distributions}
    found = [
        _wrong_version(version, requirement, parent, policy)
        for name, (requirement, parent) in required.items()
        if name not in placeholders
        and (dist := installed.find(name))
        and (version := originals.get(dist.path) or dist.version)
        and not requirement.is_met_by(version)
    ]
    return problems(found, Ok(f"all {len(required)} required CUDA packages are at their pin"))


def _wrong_version(
    version: str, requirement: Requirement, parent: str, policy: PolicyFact
) -> Problem:
    return Problem(
        culprit=requirement.name,
        message=f"{requirement.name} is {version}; {parent} requires {requirement.text}",
        evidence=(Evidence(subject=requirement.name, expected=requirement.text, found=version),),
        remedy=Remedy(
            kind="install-pinned-version",
            text=f"Install the version that {parent} requires.",
            commands=(f"{policy.pip_install} {_install_argument(requirement)}",),
        ),
    )


@check(requires=["torch-not-installed", "module-shadowed", "namespace-package-closed"])
def package_without_libraries(
    installed: DistributionsFact,
    records: RecordsFact,
    interpreter: InterpreterFact,
    host: HostFact,
    policy: PolicyFact,
) -> Verdict:
    """An NVIDIA package is a placeholder without a shared object.

    ## What it checks
    The RECORD of each `nvidia-*` package that torch requires lists at least one shared object, or
    more than the few files of a placeholder, as packages of headers do; and no other `nvidia-*`
    package without one has a version of the placeholders, which is 0.0.

    ## Why it matters
    Some names on the package index are placeholders of a few kilobytes: installed, satisfied, and
    without the library. For CUDA 13 the real names of most have no suffix: `nvidia-cublas`, not
    `nvidia-cublas-cu13`.

    ## Remedy
    Install the version that torch pins; uninstall a placeholder that nothing requires.

    ## Source
    Placeholder releases of nvidia-cudnn-cu12 0.0.1.dev5 and others, listed 2026-11-29.
    """
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    found = [
        Problem(
            culprit=name,
            message=f"{name} {installed.version_of(name)} is a placeholder without a library: "
            f"its RECORD lists {num_files} files and no shared object",
            evidence=(
                Evidence(subject=name, expected="at least one .so", found=f"{num_files} files"),
            ),
            remedy=Remedy(
                kind="install-pinned-version",
                text="Install the real package at the version that torch requires.",
                commands=(f"{policy.pip_install} {_install_argument(required[name][0])}",),
            ),
        )
        for name, num_files in _placeholders(records, required).items()
    ]
    found += [
        _useless(files, installed, policy)
        for files in records.distributions
        if files.name not in required
        and _is_bare(files)
        and installed.version_of(files.name).startswith(_PLACEHOLDER)
    ]
    return problems(found, Ok("every required NVIDIA package ships shared objects"))


def _useless(files: DistributionFiles, installed: DistributionsFact, policy: PolicyFact) -> Problem:
    return Problem(
        culprit=files.name,
        severity=Severity.WARNING,
        message=f"{files.name} {installed.version_of(files.name)} is a placeholder without a "
        "library, and torch requires no such package",
        evidence=(Evidence(subject=files.path, found=f"{files.num_files} files, no .so"),),
        remedy=Remedy(
            kind="uninstall-package",
            text=f"Uninstall {files.name}; torch's METADATA names the packages that it needs.",
            commands=(f"{policy.pip_uninstall} {files.name}",),
        ),
    )


def _placeholders(records: RecordsFact, required: RequiredPackages) -> dict[str, int]:
    """Return the number of recorded files of each required package that ships no library."""
    return {
        files.name: files.num_files
        for files in records.distributions
        if files.name in required and _is_bare(files)
    }


def _is_bare(files: DistributionFiles) -> bool:
    is_small = files.name.startswith("nvidia-") and files.num_files <= _FEW_FILES
    return is_small and not files.num_libraries and not files.error


def _install_argument(requirement: Requirement) -> str:
    text = requirement.text
    return f"'{text}'" if any(sign in text for sign in "<>!~*") else text
