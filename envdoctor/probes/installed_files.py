"""Hold the rows of one RECORD against the disk: existence, kind, size, execute permission."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envdoctor.facts import DifferingFile
from envdoctor.probes.files import describe_mode, list_folder, read_head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envdoctor.probes.record import Row

_TOOLS = frozenset({
    "bin2c", "cicc", "cuobjdump", "fatbinary", "nvcc", "nvdisasm", "nvlink", "ptxas",
    "ptxas-blackwell", "torch_shm_manager",
})  # fmt: skip
"""Programs that torch, Triton and the CUDA packages start."""

OTHER_ABI = "built for another Python's ABI"
"""Said of what lies in place of a missing compiled module."""

_MAX_DIFFERING = 100
_KIND = 0o170000
"""Bits of a mode that tell a file's kind; `stat.S_ISREG` would be a call for each file."""


@dataclass(slots=True)
class Comparison:
    """What came of holding the rows of one RECORD against the disk.

    Args:
        failed: Recorded paths that are not on disk as recorded.
        differing: What is wrong with the first hundred of them.
        outside: Recorded paths that lead out of the environment and were not looked at.
        rewritten: Scripts of `bin/` of another size: moving an environment rewrites their first
            line.
    """

    failed: set[str] = field(default_factory=set)
    differing: dict[str, DifferingFile] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)
    rewritten: set[str] = field(default_factory=set)

    def add(self, path: str, file: DifferingFile) -> None:
        """Note a row that is not on disk as recorded."""
        self.failed.add(path)
        if len(self.differing) < _MAX_DIFFERING:
            self.differing.setdefault(path, file)


def compare_rows(site: str, rows: Sequence[Row], bounds: Sequence[str]) -> Comparison:
    """Hold rows against the disk.

    Args:
        site: The package folder to which recorded paths are relative.
        rows: Rows of one RECORD.
        bounds: Folders that recorded paths may lead to.

    Raises:
        OSError: The package folder cannot be opened.
    """
    result = Comparison()
    stat_of = os.stat  # looked up once, not fifteen thousand times
    folder = os.open(site, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path, _, size in rows:
            if (".." in path or path[0] == "/") and not _is_inside(site, path, bounds):
                result.outside.add(path)
                continue
            try:
                status = stat_of(path, dir_fd=folder)
            except (OSError, ValueError) as error:
                result.add(path, _unreachable(site, path, size, error))
                continue
            mode = status.st_mode
            if mode & _KIND != stat.S_IFREG or (size is not None and status.st_size != size):
                if _is_script(site, path, mode):
                    result.rewritten.add(path)
                else:
                    result.add(path, _differs(site, path, size, status))
            elif not mode & 0o111 and "bin/" in path and path.rpartition("/")[2] in _TOOLS:
                result.add(path, _not_executable(site, path, mode))
    finally:
        os.close(folder)
    return result


def place_of(site: str, path: str) -> str:
    """Return the absolute path of a recorded one."""
    return os.path.normpath(os.path.join(site, path))  # noqa: PTH118  resolve() would follow links


def _is_inside(site: str, path: str, bounds: Sequence[str]) -> bool:
    place = place_of(site, path)
    return any(place.startswith(f"{bound.rstrip('/')}/") for bound in bounds)


def _is_script(site: str, path: str, mode: int) -> bool:
    is_candidate = path.startswith("..") and "/bin/" in path and stat.S_ISREG(mode)
    return is_candidate and read_head(place_of(site, path), 2) == b"#!"


def _expected(size: int | None) -> str:
    return "a file" if size is None else f"{size} bytes"


def _unreachable(
    site: str, path: str, size: int | None, error: OSError | ValueError
) -> DifferingFile:
    place = place_of(site, path)
    found = f"unreadable: {getattr(error, 'strerror', None) or error}"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        found = f"missing{_instead(place)}"
    return DifferingFile(path=place, expected=_expected(size), found=found)


def _instead(place: str) -> str:
    """Say what lies in place of a missing file: a dead link, or an extension for another Python."""
    try:
        return f": a link to {os.readlink(place)}, which is not there"  # noqa: PTH115  may be no path
    except (OSError, ValueError):
        pass
    folder, _, name = place.rpartition("/")
    stem, tag, _ = name.partition(".cpython-")
    if not tag:
        return ""
    others = [other for other in list_folder(folder) if other.startswith(f"{stem}.cpython-")]
    return f"; {others[0]}, {OTHER_ABI}, is there" if others else ""


def _differs(site: str, path: str, size: int | None, status: os.stat_result) -> DifferingFile:
    is_file = stat.S_ISREG(status.st_mode)
    return DifferingFile(
        path=place_of(site, path),
        expected=_expected(size),
        found=f"{status.st_size} bytes" if is_file else describe_mode(status.st_mode),
    )


def _not_executable(site: str, path: str, mode: int) -> DifferingFile:
    return DifferingFile(
        path=place_of(site, path),
        expected="a program that may be run",
        found=f"mode {stat.S_IMODE(mode):o}, which nobody may run",
    )
