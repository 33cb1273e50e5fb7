"""Compare installed files with what RECORD promises."""

from __future__ import annotations

import csv
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.facts import (
    DifferingFile,
    Distribution,
    DistributionFiles,
    DistributionsFact,
    FactSet,
    RecordsFact,
)
from envdoctor.probes.files import UnreadableError, describe_mode, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.subject import Subject

_MATTERS = ("nvidia-", "cuda-")
_MATTERS_EXACTLY = frozenset({"torch", "triton", "pytorch-triton"})


def read_records(subject: Subject, facts: FactSet) -> RecordsFact:
    """Compare the files of the distributions that matter, or of all if the subject says so."""
    installed = facts.need(DistributionsFact)
    chosen = [
        dist
        for dist in installed.distributions
        if (subject.all_records or matters(dist.name)) and dist is installed.find(dist.name)
    ]
    return RecordsFact(
        distributions=tuple(compare_files(dist) for dist in chosen if dist.has_record)
    )


def matters(name: str) -> bool:
    """Tell whether a distribution's files decide if torch runs."""
    return name in _MATTERS_EXACTLY or name.startswith(_MATTERS)


def compare_files(dist: Distribution) -> DistributionFiles:
    """Compare one distribution's files with its RECORD by existence, kind and size."""
    try:
        rows = list(parse_record(read_text(f"{dist.path}/RECORD") or ""))
    except UnreadableError as error:
        return DistributionFiles(name=dist.name, num_files=0, num_libraries=0, error=str(error))
    site = str(Path(dist.path).parent)
    differing = [file for path, size in rows if (file := _compare(f"{site}/{path}", size))]
    return DistributionFiles(
        name=dist.name,
        num_files=len(rows),
        num_libraries=sum(is_library(path) for path, _ in rows),
        differing=tuple(differing),
    )


def is_library(path: str) -> bool:
    """Tell whether a path is named like a shared object: `libx.so`, `libx.so.9`, `x.abi3.so`."""
    name = path.rpartition("/")[2]
    return name.endswith(".so") or ".so." in name


def parse_record(text: str) -> Iterator[tuple[str, int | None]]:
    """Yield path and size in bytes of each row that can be held against the disk.

    Compiled bytecode is left out, since Python rewrites it. A size is None where RECORD gives
    none, as for RECORD itself.

    Source: PyPA "Recording installed projects" specification.
    """
    for line in text.splitlines():
        if '"' in line:
            row = next(csv.reader([line]), [])
            path, size = (row[0], row[-1]) if len(row) > 1 else ("", "")
        else:
            path, _, size = line.rpartition(",")
            path = path.rpartition(",")[0]
        if path and not path.endswith(".pyc") and "\0" not in path:
            yield path, int(size) if size.isascii() and size.isdigit() else None


def _compare(path: str, size: int | None) -> DifferingFile | None:
    expected = "a file" if size is None else f"{size} bytes"
    try:
        status = os.stat(path)  # noqa: PTH116  fifteen thousand Path objects cost as much as the stats
    except (FileNotFoundError, NotADirectoryError):
        return DifferingFile(path=path, expected=expected, found="missing")
    except (OSError, ValueError) as error:
        return DifferingFile(path=path, expected=expected, found=f"unreadable: {error}")
    if not stat.S_ISREG(status.st_mode):
        return DifferingFile(path=path, expected=expected, found=describe_mode(status.st_mode))
    if size is not None and status.st_size != size:
        return DifferingFile(path=path, expected=expected, found=f"{status.st_size} bytes")
    return None
