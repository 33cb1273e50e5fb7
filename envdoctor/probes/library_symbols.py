"""Compare what loaded objects need of each other with what is there."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from envdoctor.facts import Shadow, Unmet
from envdoctor.probes.elf import ElfError, open_elf
from envdoctor.probes.elf_symbols import defines, functions, undefined

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from envdoctor.probes.library_files import LibraryFile, LibraryFiles
    from envdoctor.probes.linker import Linker, Mapped

_SHOWN_SYMBOLS = 5
_TORCH_SYMBOL = re.compile(r"_Z(?:T[ISV])?N?K?(?:2at|3c10|5torch|6caffe2|8c10_cuda)\d*[A-Z0-9]")
"""Mangled names in torch's namespaces, which only torch's libraries define."""


def unmet_versions(
    file: LibraryFile,
    distribution: str,
    providers: Mapping[str, LibraryFile | None],
    files: LibraryFiles,
) -> Iterator[Unmet]:
    """Yield the version nodes that an object needs and its providers do not define.

    A provider without any version is taken by the loader with a warning at most.
    """
    for name, wanted in files.versions(file).needed.items():
        provider = providers.get(name)
        defined = files.versions(provider).defined if provider else frozenset[str]()
        lacking = tuple(node for node in wanted if node not in defined)
        if provider and defined and lacking:
            yield Unmet(
                path=file.path,
                distribution=distribution,
                name=name,
                provider=provider.path,
                versions=lacking,
            )


class TorchSymbols:
    """What torch's libraries define, looked up once for all that need it.

    Args:
        libraries: torch's own.
    """

    def __init__(self, libraries: Collection[LibraryFile]) -> None:
        self._libraries = libraries
        self._known: set[str] = set()

    def unmet(
        self, file: LibraryFile, distribution: str, beside: Collection[LibraryFile]
    ) -> Unmet | None:
        """Return the symbols of torch that an object needs and nothing defines.

        Args:
            file: The object.
            distribution: Normalised name of the distribution it belongs to.
            beside: What it brings along, which may define them as well.
        """
        names = {name for name in _undefined(file) if _TORCH_SYMBOL.match(name)}
        wanted = names - self._known
        for provider in (*self._libraries, *beside):
            if not wanted:
                return None
            found = _defined(provider, wanted)
            wanted -= found
            if provider in self._libraries:
                self._known |= found
        if not wanted:
            return None
        shown = tuple(sorted(wanted))[:_SHOWN_SYMBOLS]
        return Unmet(path=file.path, distribution=distribution, symbols=shown)


def shadows(linker: Linker, shipped: Mapping[str, str], sites: Iterable[str]) -> Iterator[Shadow]:
    """Yield the loaded objects that stand in for a library which the environment ships."""
    inside = tuple(f"{site}/" for site in sites)
    for item in linker.objects:
        own_path = shipped.get(item.found.name) or shipped.get(_soname(item))
        if own_path is None or item.file.path.startswith(inside):
            continue
        own = linker.files.at(own_path)
        if own is None or own.header is None or _is_one_file(item.file, own):
            continue
        theirs, ours = _functions(item.file), _functions(own)
        is_alike = _soname(item) == own.header.soname and _size(item.file) == _size(own)
        yield Shadow(
            found=item.found,
            soname=_soname(item),
            own=own_path,
            num_lacking=len(ours - theirs),
            is_copy=is_alike and ours == theirs,
        )


def unmet_by_shadow(linker: Linker, files: LibraryFiles, shadow: Shadow) -> Iterator[Unmet]:
    """Yield the symbols that loaded objects need, the environment's file has, and this lacks."""
    own, taken = files.at(shadow.own), files.at(shadow.found.path)
    if own is None or taken is None:
        return
    for item in linker.objects:
        if not any(target and target.file is taken for _, target in item.needs):
            continue
        ours = _defined(own, _undefined(item.file))
        if lacking := ours - _defined(taken, ours):
            yield Unmet(
                path=item.file.path,
                distribution=item.distribution,
                name=shadow.found.name,
                provider=taken.path,
                symbols=tuple(sorted(lacking))[:_SHOWN_SYMBOLS],
            )


def _soname(item: Mapped) -> str:
    return item.file.header.soname if item.file.header else ""


def _is_one_file(first: LibraryFile, second: LibraryFile) -> bool:
    return bool(first.header and second.header and first.header.identity == second.header.identity)


def _size(file: LibraryFile) -> int:
    try:
        return os.stat(file.real).st_size  # noqa: PTH116  a string
    except OSError:
        return -1


def _undefined(file: LibraryFile) -> list[str]:
    try:
        with open_elf(file.real) as elf:
            return undefined(elf)
    except (ElfError, OSError):
        return []


def _defined(file: LibraryFile, names: Collection[str]) -> set[str]:
    try:
        with open_elf(file.real) as elf:
            return defines(elf, names)
    except (ElfError, OSError):
        return set()


def _functions(file: LibraryFile) -> set[str]:
    try:
        with open_elf(file.real) as elf:
            return functions(elf)
    except (ElfError, OSError):
        return set()
