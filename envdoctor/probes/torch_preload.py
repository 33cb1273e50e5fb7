"""Read which CUDA libraries torch opens itself before its own, out of its source text."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.library_files import LibraryFiles

_PAIR = re.compile(
    r"""["']([a-z_]+)["']\s*[,:]\s*["'](lib[\w-]+\.so[^"']*)["'](\s*,\s*required\s*=\s*False)?"""
)
_GUARD = re.compile(r"""if ["']([^"']+)["'] not in _?maps""")


class PreloadedLibrary(NamedTuple):
    """A library by its folder below `nvidia/` and a pattern of its file name."""

    folder: str
    pattern: str
    is_required: bool = True


class TorchPreload(NamedTuple):
    """What `torch/__init__.py` opens by path.

    Args:
        on_failure: Opened, in order, when libtorch_global_deps.so cannot be loaded.
        always: Opened, in order, after it was loaded.
        guards: Parts of paths that must be mapped, or else `always` is left out.
    """

    on_failure: tuple[PreloadedLibrary, ...] = ()
    always: tuple[PreloadedLibrary, ...] = ()
    guards: tuple[str, ...] = ()


def parse_preload(text: str) -> TorchPreload:
    """Return what torch preloads, by the text of its `__init__.py`.

    Source: torch/__init__.py of the releases 1.13 to 2.15: the list stood in `_load_global_deps`
    first; then in `_preload_cuda_deps`; since 2.10 all of it is opened always.
    """
    tried, _, failed = _function(text, "_load_global_deps").partition("except OSError")
    listed = _pairs(_function(text, "_preload_cuda_deps")) or _pairs(failed)
    return TorchPreload(
        on_failure=listed,
        always=listed if "_preload_cuda_deps()" in tried else _pairs(tried),
        guards=tuple(_GUARD.findall(tried)),
    )


def find_preloaded(
    library: PreloadedLibrary, files: LibraryFiles, sites: tuple[str, ...], cuda_major: str
) -> str | None:
    """Return the path that torch would open for a library: the first folder of `sys.path` wins."""
    for site in sites:
        for path in _candidates(library, files, site, cuda_major):
            return path
    return None


def _candidates(
    library: PreloadedLibrary, files: LibraryFiles, site: str, cuda_major: str
) -> Iterator[str]:
    folders = [f"{site}/nvidia/{library.folder}/lib", f"{site}/{library.folder}/lib"]
    if cuda_major:
        folders.insert(1, f"{site}/nvidia/cu{cuda_major}/lib")
    for folder in folders:
        for name in sorted(files.names(folder)):
            if fnmatch(name, library.pattern):
                yield f"{folder}/{name}"


def _function(text: str, name: str) -> str:
    """Return the text of a function of the module; empty if it has none of this name."""
    start = text.find(f"\ndef {name}(")
    if start < 0:
        return ""
    end = re.compile(r"\n(?=[^\s#)])").search(text, start + 1)
    return text[start : end.start() if end else len(text)]


def _pairs(text: str) -> tuple[PreloadedLibrary, ...]:
    return tuple(
        PreloadedLibrary(folder, pattern, not optional)
        for folder, pattern, optional in _PAIR.findall(text)
    )
