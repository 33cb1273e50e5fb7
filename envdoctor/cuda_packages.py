"""Names of NVIDIA's packages: which library they hold, and for which CUDA."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envdoctor.requirements import name_of

if TYPE_CHECKING:
    from envdoctor.facts import Distribution, DistributionsFact, RecordsFact, TorchBuildFact

_SUFFIX = re.compile(r"-cu(\d\d)$")
_FOLDER = re.compile(r"/nvidia/cu(\d\d)/")


def suffix_major(name: str) -> int | None:
    """Return the CUDA major release in a package's name: 12 for `nvidia-cudnn-cu12`."""
    match = _SUFFIX.search(name)
    return int(match[1]) if match else None


def cuda_majors(records: RecordsFact) -> dict[str, int]:
    """Return the CUDA major release of each package that tells one.

    Since CUDA 13 most names have no suffix; their libraries lie in `nvidia/cu13`.
    """
    found: dict[str, int] = {}
    for files in records.distributions:
        if major := suffix_major(files.name):
            found[files.name] = major
    for name, path in records.libraries:
        if name.startswith("nvidia-") and name not in found and (match := _FOLDER.search(path)):
            found[name] = int(match[1])
    return found


def torch_major(torch_build: TorchBuildFact) -> int | None:
    """Return the CUDA major release that torch was built for; None for a build without CUDA."""
    major = (torch_build.cuda or "").partition(".")[0]
    return int(major) if major.isdecimal() else None


def find_orphans(
    records: RecordsFact, installed: DistributionsFact, major: int
) -> list[Distribution]:
    """Return the packages for another CUDA than `major` that nothing requires.

    One that another names under an extra counts as required, since nobody records which extras
    were asked for. Packages for other CUDAs that require each other do not hold each other.
    """
    foreign = {name for name, own in cuda_majors(records).items() if own != major}
    named = {
        name_of(line)
        for dist in installed.distributions
        if dist.name not in foreign
        for line in dist.requires
    }
    queue = [name for name in foreign if name in named]
    kept = set(queue)
    while queue:
        dist = installed.find(queue.pop())
        wanted = {name_of(line) for line in dist.requires} if dist else set()
        queue += (wanted & foreign) - kept
        kept |= wanted & foreign
    return [dist for name in sorted(foreign - kept) if (dist := installed.find(name))]
