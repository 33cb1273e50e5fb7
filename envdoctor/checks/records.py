"""Checks of RECORD and METADATA themselves: gone, not followed in full, edited."""

from __future__ import annotations

from envdoctor.check import check, problems
from envdoctor.compatibility import nvidia_libraries
from envdoctor.cuda_packages import suffix_major
from envdoctor.facts import (
    Distribution,
    DistributionFiles,
    DistributionsFact,
    HostFact,
    InterpreterFact,
    LibraryFoldersFact,
    PolicyFact,
    RecordsFact,
)
from envdoctor.probes.record import matters
from envdoctor.reinstalls import reinstall
from envdoctor.requirements import (
    marker_environment,
    required_cuda_packages,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict


@check()
def package_without_record(
    installed: DistributionsFact, folders: LibraryFoldersFact, policy: PolicyFact
) -> Verdict:
    """A package's files cannot be checked, because its RECORD is gone.

    ## What it checks
    torch, Triton and the NVIDIA packages have a RECORD. Where one has none, the version that a
    header or the library itself states is held against METADATA, and cuDNN's libraries have to be
    complete, since it opens most of them by name while it runs.

    ## Why it matters
    Without it neither installers nor this tool know which files belong to the package; an
    installation that was interrupted looks like this. Whether the library is there, and which one,
    decides if torch runs.

    ## Remedy
    Reinstall the package by force.

    ## Source
    PyPA "Recording installed projects"; astral-sh/uv#2304.
    """
    gone = [
        dist
        for dist in installed.distributions
        if not dist.has_record
        and dist is installed.find(dist.name)  # a leftover beside it is another check's matter
        and dist.installer != "conda"
        and matters(dist.name)
    ]
    found = [_without_record(dist, _unfit_library(dist, folders), policy) for dist in gone]
    return problems(found, Ok("every package that matters has a RECORD"))


def _without_record(dist: Distribution, unfit: Evidence | None, policy: PolicyFact) -> Problem:
    gone = Evidence(subject=f"{dist.path}/RECORD", expected="a file", found="missing")
    told = "its files were not checked"
    if unfit:
        told = f"and {unfit.subject} is {unfit.found} (expected {unfit.expected})"
    return Problem(
        culprit=dist.name,
        severity=Severity.ERROR if unfit else Severity.WARNING,
        message=f"{dist.name} {dist.version} has no RECORD: {told}",
        evidence=(gone, unfit) if unfit else (gone,),
        remedy=_reinstall(dist.name, dist.version, policy),
    )


def _reinstall(
    name: str, version: str, policy: PolicyFact, *, kind: str = "reinstall-package"
) -> Remedy:
    command = reinstall(policy, [(name, version)])
    return Remedy(
        kind=kind,
        text=f"Reinstall {name} by force.",
        commands=(command,) if command else (),
    )


def _unfit_library(dist: Distribution, folders: LibraryFoldersFact) -> Evidence | None:
    """Return what is wrong with the libraries of an NVIDIA package; None if nothing is known.

    A library that torch itself needs and that is gone is told by `needed-library-not-found`.
    """
    library = next((item for item in nvidia_libraries() if item.is_package(dist.name)), None)
    major = suffix_major(dist.name)
    for folder in folders.folders if library else ():
        if library is None or folder.package != library.package:
            continue
        gone = [name for name in library.companions if name not in folder.files]
        if gone and library.companions_of in folder.files:
            expected = f"a library that {library.companions_of} opens"
            return Evidence(
                subject=f"{folder.path}/lib/{gone[0]}", expected=expected, found="missing"
            )
        stated = folder.stated_version or folder.header_version
        release, _, cuda = stated.partition("+cuda")
        if release and not f"{dist.version}.".startswith(f"{release}."):
            return Evidence(subject=folder.path, expected=dist.version, found=stated)
        if cuda and major and cuda.partition(".")[0] != str(major):
            return Evidence(subject=folder.path, expected=f"CUDA {major}", found=stated)
    return None


@check()
def record_not_followed(
    records: RecordsFact, installed: DistributionsFact, policy: PolicyFact
) -> Verdict:
    """A package's RECORD could not be followed in full.

    ## What it checks
    RECORD lists itself, ends with a whole line, is not longer than any real one, and names no path
    outside the environment. What it names beyond that is not looked at.

    ## Why it matters
    A RECORD that was cut short or tampered with hides damage: files that it does not list are
    neither checked here nor removed by an uninstall.

    ## Remedy
    Reinstall the package by force.

    ## Source
    PyPA "Recording installed projects": every file is listed, RECORD among them.
    """
    found = [
        Problem(
            culprit=files.name,
            severity=Severity.WARNING,
            message=f"not looked at of {files.name}: {'; '.join(files.unread)}",
            evidence=tuple(
                Evidence(subject=f"{files.path}/RECORD", found=reason) for reason in files.unread
            ),
            remedy=_reinstall(files.name, _version_of(files, installed), policy),
        )
        for files in records.distributions
        if files.unread and not _is_doubled(files, installed)
    ]
    return problems(found, Ok(f"{len(records.distributions)} RECORDs were followed in full"))


@check()
def package_metadata_edited(
    records: RecordsFact,
    installed: DistributionsFact,
    interpreter: InterpreterFact,
    host: HostFact,
    policy: PolicyFact,
) -> Verdict:
    """A package's METADATA is not what was installed.

    ## What it checks
    METADATA of torch, Triton and the NVIDIA packages has the hash that RECORD gives. If not, the
    versions that are stated elsewhere are put in its place until the hash fits: so it is told which
    version was installed.

    ## Why it matters
    Installers, `pip check` and other packages believe the version and the requirements that
    METADATA states, while Python and the loader use the files of another version.

    ## Remedy
    Reinstall by force the version whose files are there.

    ## Source
    PyPA "Recording installed projects"; PyPA "Core metadata specifications".
    """
    required = required_cuda_packages(installed, marker_environment(interpreter, host))
    found: list[Problem] = []
    for files in records.distributions:
        version = _version_of(files, installed)
        pin = required.get(files.name)
        # Without the original version, one that breaks the pin is told as such; damage as damage.
        breaks_pin = pin is not None and not pin[0].is_met_by(version)
        is_told = files.differing or _is_doubled(files, installed)
        if files.metadata_edited and not is_told and (files.original_version or not breaks_pin):
            found.append(_edited(files, version, policy, is_pinned=pin is not None))
    return problems(found, Ok("every METADATA is as it was installed"))


def _edited(
    files: DistributionFiles, version: str, policy: PolicyFact, *, is_pinned: bool
) -> Problem:
    name, original = files.name, files.original_version
    is_other = original not in ("", version)
    kind = "install-pinned-version" if is_pinned and is_other else "reinstall-package"
    if original:
        told = f"{name} was installed as {original}; its METADATA was changed to say {version}"
    else:
        told = f"the METADATA of {name} {version} is not what was installed"
    return Problem(
        culprit=name,
        severity=Severity.ERROR if is_other else Severity.WARNING,
        message=told,
        evidence=(
            Evidence(
                subject=f"{files.path}/METADATA",
                expected=f"Version: {original}" if original else "its recorded hash",
                found=f"Version: {version}",
            ),
        ),
        remedy=_reinstall(name, original or version, policy, kind=kind),
    )


def _version_of(files: DistributionFiles, installed: DistributionsFact) -> str:
    """Return the version in the METADATA beside a RECORD."""
    versions = {dist.path: dist.version for dist in installed.distributions}
    return versions.get(files.path, "")


def _is_doubled(files: DistributionFiles, installed: DistributionsFact) -> bool:
    """Tell whether a name has two folders, of which `duplicate-distribution` tells."""
    return sum(dist.name == files.name for dist in installed.distributions) > 1
