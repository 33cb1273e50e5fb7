"""Checks for libraries that are loaded from outside the environment in place of its own."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.compatibility import cudnn_parts
from envdoctor.facts import (
    DistributionsFact,
    FoundLibrary,
    LoaderFact,
    RecordsFact,
    Shadow,
    VariablesFact,
)
from envdoctor.search_path import removal_of
from envdoctor.verdict import Evidence, Ok, Problem, Severity, Skipped, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envdoctor.facts import Distribution

_CUDNN_PART = "libcudnn_"
_SHOWN = 5


@check(requires=["torch-not-installed", "lib-lib64-split"])
def library_shadowed(loader: LoaderFact, variables: VariablesFact) -> Verdict:
    """A library from elsewhere is loaded in place of the environment's own.

    ## What it checks
    Which file the loader takes for each library that the environment ships, and whether a foreign
    one defines the symbols that torch's libraries need of it. A file on LD_LIBRARY_PATH that is
    never taken is not a finding: torch's RPATH comes first.

    ## Why it matters
    NVIDIA's own libraries find each other by RUNPATH, which comes after LD_LIBRARY_PATH; a module
    path or an image that puts an older CUDA toolkit there makes `import torch` stop with "undefined
    symbol", and no reinstallation helps.

    ## Remedy
    Take the folder off LD_LIBRARY_PATH, LD_PRELOAD or the loader's configuration.

    ## Source
    ld.so(8); pytorch/pytorch#134929; infiniflow/ragflow#4466.
    """
    groups: dict[str, list[Shadow]] = {}
    for shadow in loader.shadows:
        if not shadow.found.name.startswith(_CUDNN_PART) and not shadow.is_copy:
            groups.setdefault(shadow.found.source or shadow.found.path, []).append(shadow)
    found = [_shadowed(group, loader, variables) for group in groups.values()]
    return problems(found, Ok("what the environment ships is what is loaded"))


def _shadowed(group: list[Shadow], loader: LoaderFact, variables: VariablesFact) -> Problem:
    group = sorted(group, key=lambda shadow: _mismatch(shadow, loader) == "")
    worst = group[0]
    mismatch = _mismatch(worst, loader)
    removal = removal_of([shadow.found for shadow in group], variables)
    more = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
    why = mismatch or f"it lacks {worst.num_lacking} of its functions"
    if not mismatch and not any(shadow.num_lacking for shadow in group):
        why = "nothing that torch needs is lacking there"
    return Problem(
        culprit=removal.culprit,
        severity=_severity(group, mismatch),
        owner=removal.owner,
        message=f"{worst.found.name} is loaded from {worst.found.path}{more} because of "
        f"{worst.found.source or worst.found.via}, in place of {worst.own}: {why}; the "
        "environment's own file is fine",
        evidence=tuple(
            Evidence(
                subject=shadow.found.name,
                expected=shadow.own,
                found=f"{shadow.found.path} ({_mismatch(shadow, loader) or shadow.found.via})",
            )
            for shadow in group[:_SHOWN]
        ),
        remedy=removal.remedy,
    )


def _severity(group: Sequence[Shadow], mismatch: str) -> Severity:
    if mismatch:
        return Severity.ERROR
    return Severity.WARNING if any(item.num_lacking for item in group) else Severity.INFO


def _mismatch(shadow: Shadow, loader: LoaderFact) -> str:
    """Say what is proof that the loaded file cannot serve; empty if there is none."""
    path, name = shadow.found.path, shadow.found.name
    error = next((item.error for item in loader.objects if item.path == path), "")
    if error:
        return f"it is no library: {error}"
    for item in loader.unmet:
        if item.provider == path:
            lacking = (*item.symbols, *item.versions)[0]
            return f"it lacks {lacking}, which {PurePath(item.path).name} needs"
    if shadow.soname and shadow.soname != name:
        return f"it is {shadow.soname}"
    return ""


@check(requires=["torch-not-installed", "lib-lib64-split"])
def cudnn_from_two_places(
    loader: LoaderFact,
    installed: DistributionsFact,
    records: RecordsFact,
    variables: VariablesFact,
) -> Verdict:
    """CuDNN's parts come from the environment and from the system together.

    ## What it checks
    Where each part that cuDNN opens by name while it runs (`libcudnn_graph.so.9` and others) would
    be found, when `libcudnn.so.9` itself is the environment's. A part that only the system has is
    a finding if this cuDNN asks for it.

    ## Why it matters
    `import torch` passes; the first convolution stops with a sub-library version mismatch, and only
    on machines with a system cuDNN.

    ## Remedy
    Keep the system's cuDNN off the loader's path. torch's own pin forbids to upgrade its cuDNN
    alone.

    ## Source
    pytorch/pytorch#188892; LD_DEBUG=libs of cuDNN 9.10, 9.19 and 9.24, read 2026-11-29.
    """
    main = next(
        (item for item in loader.objects if item.found.name.startswith("libcudnn.so")), None
    )
    if main is None or main.path not in loader.paths_of(main.found.name):
        return Skipped("the environment's own cuDNN is not loaded")
    dist = _cudnn_package(installed)
    version = dist.version if dist else ""
    lost = {PurePath(file.path).name for item in records.distributions for file in item.differing}
    foreign = [
        item
        for item in loader.cudnn
        if item.path not in loader.paths_of(item.name) and item.name not in lost
    ]
    mixed = [item for item in foreign if _is_opened(item, version) and not _agrees(item, version)]
    if not mixed:
        return Ok(f"cuDNN {version} and its {len(loader.cudnn)} parts come from one place")
    groups: dict[str, list[FoundLibrary]] = {}
    for item in mixed:
        groups.setdefault(item.source or item.via, []).append(item)
    found = [_mixed(group, dist, main.path, variables) for group in groups.values()]
    return problems(found, Ok())


def _mixed(
    group: list[FoundLibrary], dist: Distribution | None, main: str, variables: VariablesFact
) -> Problem:
    removal = removal_of(group, variables)
    first = group[0]
    version = dist.version if dist else ""
    certain = any(_is_certain(item, version) for item in group)
    name = f"{dist.name} {version}" if dist else main
    return Problem(
        culprit=removal.culprit,
        severity=Severity.ERROR if certain else Severity.WARNING,
        owner=removal.owner,
        message=f"{name} would open {first.name} from {PurePath(first.path).parent}: parts of two "
        "cuDNN versions in one process",
        evidence=(
            Evidence(subject="libcudnn", expected=main, found=main),
            *(
                Evidence(
                    subject=item.name,
                    expected=f"{PurePath(main).parent}/{item.name}, or nothing",
                    found=f"{item.path} ({item.source or item.via})",
                )
                for item in group[:_SHOWN]
            ),
        ),
        remedy=removal.remedy,
    )


def _cudnn_package(installed: DistributionsFact) -> Distribution | None:
    found = (dist for dist in installed.distributions if dist.name.startswith("nvidia-cudnn-cu"))
    return next(found, None)


def _is_opened(item: FoundLibrary, version: str) -> bool:
    """Tell whether a cuDNN of a version may open a part; by the table where its files are mute."""
    since = cudnn_parts().get(item.name.partition(".")[0])
    return item.is_certain or since is None or not version or _key(version) >= _key(since)


def _is_certain(item: FoundLibrary, version: str) -> bool:
    known = item.name.partition(".")[0] in cudnn_parts()
    return item.is_certain or (known and bool(version))


def _agrees(item: FoundLibrary, version: str) -> bool:
    """Tell whether a file's full name says that it is of the same cuDNN."""
    found = re.search(r"\.so\.(\d+\.\d+\.\d+)$", item.target)
    return found is not None and _key(found[1]) == _key(version)[:3]


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
