"""Find the compiled modules of installed packages, by what their RECORD lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.probes.files import UnreadableError, read_text
from envdoctor.probes.record import is_library, parse_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.facts import Distribution, DistributionsFact
    from envdoctor.probes.library_files import LibraryFile, LibraryFiles

TORCH_LIBRARIES = ("libtorch", "libc10")
"""How the names of torch's own libraries begin."""

_OWN_PACKAGES = frozenset({"torch", "triton", "pytorch-triton"})
_MAX_MODULES = 2000


def compiled_modules(
    installed: DistributionsFact, files: LibraryFiles
) -> Iterator[tuple[str, LibraryFile]]:
    """Yield the shared objects of packages other than torch and NVIDIA's, with their owners."""
    num_modules = 0
    for dist in installed.distributions:
        if dist.name in _OWN_PACKAGES or dist.name.startswith("nvidia-") or not dist.has_record:
            continue
        for path in _recorded(dist):
            num_modules += 1
            if num_modules > _MAX_MODULES:
                return
            if file := files.at(path):
                yield dist.name, file


def is_built_against_torch(file: LibraryFile) -> bool:
    """Tell whether an object is linked to torch's own libraries."""
    needed = file.header.needed if file.header else ()
    return any(name.startswith(TORCH_LIBRARIES) for name in needed)


def is_python_module(file: LibraryFile) -> bool:
    """Tell whether an object is one to import; libraries beside it may be for other machines."""
    return not file.path.rpartition("/")[2].startswith("lib")


def _recorded(dist: Distribution) -> Iterator[str]:
    try:
        text = read_text(f"{dist.path}/RECORD") or ""
    except UnreadableError:
        return
    if ".so" not in text:
        return
    site = dist.path.rpartition("/")[0]
    lines = "\n".join(line for line in text.splitlines() if ".so" in line)
    for path, _ in parse_record(lines):
        if is_library(path) and not path.startswith(("/", "..")):
            yield f"{site}/{path}"
