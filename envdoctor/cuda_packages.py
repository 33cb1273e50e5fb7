"""Names of NVIDIA's packages: which library they hold, and for which CUDA."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envdoctor.facts import RecordsFact, TorchBuildFact

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
