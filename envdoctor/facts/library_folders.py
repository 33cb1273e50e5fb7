"""Readings of the NVIDIA packages' folders that need no RECORD."""

from __future__ import annotations

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
class LibraryFolder:
    """One NVIDIA package's part of a folder that is on disk.

    Args:
        package: The package's name without its CUDA suffix, such as `nvidia-cudnn`.
        path: The folder, such as `.../nvidia/cudnn`.
        files: Names in its `lib` folder.
        header_version: Version that its header states, such as `9.10.2`; empty if it has none, or
            if RECORD shows that the files are the package's own.
        stated_version: Version that the library itself states, such as `2.27.5+cuda12.9`; empty
            likewise.
    """

    package: str
    path: str
    files: tuple[str, ...]
    header_version: str = ""
    stated_version: str = ""


@keyword_value
class LibraryFoldersFact(Fact):
    """What lies where the NVIDIA packages put their libraries, whatever is recorded."""

    folders: tuple[LibraryFolder, ...] = ()
