"""Find the compiled modules of installed packages, by what their RECORD lists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.facts import Distribution, DistributionsFact, RecordsFact
    from envdoctor.probes.library_files import LibraryFile, LibraryFiles

TORCH_LIBRARIES = ("libtorch.", "libtorch_", "libc10.", "libc10_")
"""How the names of torch's own libraries begin; `libtorchaudio.so` is not among them."""

_OWN_PACKAGES = frozenset({"torch", "triton", "pytorch-triton"})
_MAX_MODULES = 2000
_MANYLINUX = re.compile(r"manylinux(?:1|2010|2014|_2_(\d+))_")
_OLD_GLIBC = 28


def compiled_modules(
    installed: DistributionsFact, records: RecordsFact, files: LibraryFiles
) -> Iterator[tuple[Distribution, LibraryFile]]:
    """Yield the shared objects of packages other than torch and NVIDIA's, with their owners."""
    owners = {dist.name: dist for dist in reversed(installed.distributions)}
    num_modules = 0
    for name, path in records.libraries:
        if name in _OWN_PACKAGES or name.startswith("nvidia-") or name not in owners:
            continue
        num_modules += 1
        if num_modules > _MAX_MODULES:
            return
        if file := files.at(path):
            yield owners[name], file


def is_built_against_torch(file: LibraryFile) -> bool:
    """Tell whether an object is linked to torch's own libraries."""
    needed = file.header.needed if file.header else ()
    return any(name.startswith(TORCH_LIBRARIES) for name in needed)


def is_python_module(file: LibraryFile) -> bool:
    """Tell whether an object is one to import; libraries beside it may be for other machines."""
    return not file.path.rpartition("/")[2].startswith("lib")


def needs_little(dist: Distribution) -> bool:
    """Tell whether a wheel's tag promises that it runs on systems as old as glibc 2.28.

    Source: PEP 599, PEP 600; auditwheel's policies, which bound GLIBCXX with glibc.
    """
    found = [match for tag in dist.tags for match in _MANYLINUX.finditer(tag)]
    return any(int(match[1] or 0) <= _OLD_GLIBC for match in found)
