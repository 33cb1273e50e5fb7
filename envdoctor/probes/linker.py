"""Simulate the dynamic linker: where it finds a library, and what that brings along."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envdoctor.facts import FoundLibrary
from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from envdoctor.facts import Via
    from envdoctor.probes.library_files import LibraryFile, LibraryFiles

_LIB_FOLDERS = ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib")
"""What `$LIB` stands for, which is set when glibc is built."""


@keyword_value
class SearchPath:
    """Where the linker of one process looks, besides what objects name themselves.

    Args:
        library_path: Folders of LD_LIBRARY_PATH.
        cache: Path by SONAME.
        defaults: Folders that come last.
        program: The interpreter, whose RPATH counts for all that it opens.
        program_rpath: Folders that stand in for the RPATH of an interpreter that is not there.
        named_by: The ld.so.conf file by the folder that it names.
    """

    library_path: tuple[str, ...] = ()
    cache: Mapping[str, str] = field(default_factory=dict)
    defaults: tuple[str, ...] = ()
    program: LibraryFile | None = None
    program_rpath: tuple[str, ...] = ()
    named_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Mapped:
    """An object in the simulated process.

    Args:
        file: What is mapped.
        found: Where it was found and why.
        by: The object that asked for it first; None for what Python opens.
        distribution: Normalised name of the distribution that it is loaded for first.
        needs: Its DT_NEEDED in order, each with what it landed on.
        is_walked: True once its needs have been followed.
    """

    file: LibraryFile
    found: FoundLibrary
    by: Mapped | None = None
    distribution: str = ""
    needs: list[tuple[str, Mapped | None]] = field(default_factory=list)
    is_walked: bool = False


Hit = tuple["LibraryFile", "Via", str]


class Linker:
    """One process, as far as its shared objects go.

    Args:
        files: The machine's shared objects.
        path: Where to look.

    Source: ld.so(8); glibc elf/dl-load.c `_dl_map_object`, elf/dl-deps.c, version 2.36.
    """

    def __init__(self, files: LibraryFiles, path: SearchPath) -> None:
        self.files = files
        self.path = path
        self.objects: list[Mapped] = []
        self._by_name: dict[str, Mapped] = {}
        self._by_identity: dict[tuple[int, int], Mapped] = {}

    def loaded(self, name: str) -> Mapped | None:
        """Return the object that is loaded under a name; it is taken wherever else one lies."""
        return self._by_name.get(name)

    def open(
        self, name: str, *, by: Mapped | None = None, via: Via = "opened", distribution: str = ""
    ) -> Mapped | None:
        """Load an object by path or name with all it needs, breadth first.

        Args:
            name: A path, or a name to search for.
            by: The object whose code opens it; None for Python.
            via: How to call it that a path was given.
            distribution: Normalised name of the distribution that it is opened for; what it
                brings along counts to it as well.

        Returns:
            The object; None if it is found nowhere.
        """
        mark = self.mark()
        if "/" in name:
            file = self.files.at(name)
            top = self._take(name, (file, via, ""), by) if file else None
        else:
            top = self._map(name, by)
        if top is not None:
            self.walk(top)
        for item in self.objects[mark:]:
            item.distribution = distribution
        return top

    def walk(self, top: Mapped) -> None:
        """Load what an object needs, in the linker's order: all direct needs before theirs."""
        queue = deque([top])
        while queue:
            item = queue.popleft()
            if item.is_walked or item.file.header is None:
                continue
            item.is_walked = True
            for name in item.file.header.needed:
                target = self._map(name, item)
                item.needs.append((name, target))
                if target is not None:
                    queue.append(target)

    def search(self, name: str, by: Mapped | None) -> Iterator[Hit]:
        """Yield every file that a search for a name passes, the one that is taken first."""
        header = by.file.header if by else None
        if header is None or header.runpath is None:
            yield from self._in_rpaths(name, by)
        yield from self._in_folders(name, self.path.library_path, "LD_LIBRARY_PATH")
        if by is not None and header is not None and header.runpath is not None:
            folders = expand(header.runpath, by.file)
            yield from self._in_folders(name, folders, "RUNPATH", by.file.path)
        if cached := self.path.cache.get(name):
            folder = cached.rpartition("/")[0]
            if file := self.files.at(cached):
                yield file, "ld.so.cache", self.path.named_by.get(folder, "")
        for folder in self.path.defaults:
            if file := self.files.at(f"{folder}/{name}"):
                yield file, "default", ""

    def mark(self) -> int:
        """Return a mark to which `forget` takes the process back."""
        return len(self.objects)

    def forget(self, mark: int) -> None:
        """Unload what was loaded since a mark, as happens when an object cannot be opened."""
        kept = set(self.objects[:mark])
        del self.objects[mark:]
        self._by_name = {name: item for name, item in self._by_name.items() if item in kept}
        known = self._by_identity.items()
        self._by_identity = {identity: item for identity, item in known if item in kept}

    def _in_rpaths(self, name: str, by: Mapped | None) -> Iterator[Hit]:
        """Search the RPATH of the object, of the one that loaded it, and so on up."""
        item = by
        while item is not None:
            header = item.file.header
            if header and header.rpath and header.runpath is None:
                folders = expand(header.rpath, item.file)
                yield from self._in_folders(name, folders, "RPATH", item.file.path)
            item = item.by
        program = self.path.program
        if program and program.header and program.header.runpath is None:
            folders = expand(program.header.rpath, program)
            yield from self._in_folders(name, folders, "RPATH", program.path)
        yield from self._in_folders(name, self.path.program_rpath, "RPATH", "the interpreter")

    def _in_folders(
        self, name: str, folders: tuple[str, ...], via: Via, source: str = ""
    ) -> Iterator[Hit]:
        for folder in folders:
            if file := self.files.in_folder(folder, name):
                yield file, via, source or via

    def _map(self, name: str, by: Mapped | None) -> Mapped | None:
        """Return the object for a name, loaded already or mapped now; None if there is none."""
        if known := self._by_name.get(name):
            return known
        if "/" in name:  # some are linked by path
            file = self.files.at(name)
            return self._take(name, (file, "opened", ""), by) if file else None
        hit = next(self.search(name, by), None)
        return self._take(name, hit, by) if hit else None

    def _take(self, name: str, hit: Hit, by: Mapped | None) -> Mapped:
        file, via, source = hit
        identity = file.header.identity if file.header else (0, 0)
        item = self._by_name.get(name) or self._by_identity.get(identity)
        if item is None:
            called = (file.header and file.header.soname) or name if "/" in name else name
            found = FoundLibrary(
                name=called.rpartition("/")[2],
                path=file.path,
                via=via,
                source=source,
                target=file.target,
            )
            item = Mapped(file, found, by)
            self.objects.append(item)
        if file.header:
            self._by_identity[identity] = item
            if file.header.soname:
                self._by_name.setdefault(file.header.soname, item)
        self._by_name.setdefault(name, item)
        return item


def expand(text: str, file: LibraryFile) -> tuple[str, ...]:
    """Return the folders of an RPATH or RUNPATH; an empty entry, the working folder, is left out.

    Source: ld.so(8), "Dynamic string tokens".
    """
    found: list[str] = []
    for entry in filter(None, text.split(":")):
        for token in ("${ORIGIN}", "$ORIGIN"):
            entry = entry.replace(token, file.folder)  # noqa: PLW2901  one entry, step by step
        if "$LIB" in entry or "${LIB}" in entry:
            folders = (entry.replace("${LIB}", lib).replace("$LIB", lib) for lib in _LIB_FOLDERS)
            found += folders
        else:
            found.append(entry)
    return tuple(found)
