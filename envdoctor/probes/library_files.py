"""Find shared objects on the inspected machine, each read once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.probes.elf import ElfError, ElfHeader, open_elf
from envdoctor.probes.elf_symbols import NO_VERSIONS, ElfVersions, read_versions
from envdoctor.probes.files import list_folder

if TYPE_CHECKING:
    from envdoctor.probes.subject import Subject

_MAX_LINKS = 40
_PASSED_OVER = ("not a 64-bit little-endian ELF object", "ELF type")


class LibraryFile(NamedTuple):
    """A file that the loader stops at.

    Args:
        path: As users of the machine know it.
        real: Where to read it.
        target: Name of the file behind symbolic links.
        header: What its header says; None if it is no loadable object.
        error: Why it is no loadable object; empty if it is one.
    """

    path: str
    real: str
    target: str
    header: ElfHeader | None = None
    error: str = ""

    @property
    def folder(self) -> str:
        """What `$ORIGIN` stands for in its search paths."""
        return self.path.rpartition("/")[0]


class LibraryFiles:
    """Folders and shared objects of one machine, each looked at once.

    Args:
        subject: What is inspected.
        machine: The only one whose code the loader takes, as `uname -m` spells it.

    Attributes:
        passed_over: Files that were met and are for another machine.
    """

    def __init__(self, subject: Subject, machine: str) -> None:
        self._subject = subject
        self._machine = machine
        self._files: dict[str, LibraryFile | None] = {}
        self._folders: dict[str, tuple[str, frozenset[str]]] = {}
        self._versions: dict[str, ElfVersions] = {}
        self.passed_over: list[str] = []

    def in_folder(self, folder: str, name: str) -> LibraryFile | None:
        """Return a file of a folder, or None if the loader would search on."""
        known = self._folders.get(folder)
        if known is None:
            known = self._folders[folder] = self._list(folder)
        shown, names = known
        return self.at(f"{shown}/{name}") if name in names else None

    def names(self, folder: str) -> frozenset[str]:
        """Return the entries of a folder; empty if there is no such folder."""
        self.in_folder(folder, "")
        return self._folders[folder][1]

    def at(self, path: str) -> LibraryFile | None:
        """Return the file at a path, or None if the loader would pass over it."""
        if path not in self._files:
            self._files[path] = self._read(path)
        return self._files[path]

    def versions(self, file: LibraryFile) -> ElfVersions:
        """Return the version nodes of a shared object; none if it cannot be read."""
        if file.path not in self._versions:
            try:
                with open_elf(file.real) as elf:
                    self._versions[file.path] = read_versions(elf)
            except (ElfError, OSError):
                self._versions[file.path] = NO_VERSIONS
        return self._versions[file.path]

    def real(self, path: str) -> str:
        """Return where a path of the machine can be read, links included."""
        if self._subject.is_this_machine:
            return path
        located = str(self._subject.locate(path))
        root = str(self._subject.root)
        return resolve_below(root, located) if located.startswith(f"{root}/") else located

    def program(self, path: str) -> LibraryFile | None:
        """Return the interpreter, whose own search path counts for all that it opens."""
        try:
            real = os.path.realpath(self.real(path))
            with open_elf(real, executable=True) as file:
                return LibraryFile(self._subject.shown(real), real, "", file.header())
        except (ElfError, OSError, ValueError):
            return None

    def _list(self, folder: str) -> tuple[str, frozenset[str]]:
        real = self.real(folder)
        names = frozenset(list_folder(real))
        plain = os.path.normpath(folder)
        # Behind a link `..` leads elsewhere than the text says.
        if names and ".." in folder and not _is_same(self.real(plain), real):
            plain = self._subject.shown(os.path.realpath(real))
        return plain, names

    def _read(self, path: str) -> LibraryFile | None:
        real = self.real(path)
        try:
            with open_elf(real) as file:
                if file.machine != self._machine:
                    self.passed_over.append(path)
                    return None
                header = file.header()
        except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
            return None
        except (ElfError, OSError) as error:
            if str(error).startswith(_PASSED_OVER):
                self.passed_over.append(path)
                return None
            return LibraryFile(path, real, _target(real), error=str(error))
        return LibraryFile(path, real, _target(real), header)


def resolve_below(root: str, path: str) -> str:
    """Follow the links of a path below a root as a process would whose `/` that root is.

    A path that links without end is returned as it is, which cannot be read either.
    """
    rest = path[len(root) :].split("/")[::-1]
    done: list[str] = []
    links = 0
    while rest:
        part = rest.pop()
        if part == "..":
            done = done[:-1]
        elif part not in ("", "."):
            here = "/".join([root, *done, part])
            if not os.path.islink(here):  # noqa: PTH114  a string in a tight loop
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                return path
            target = os.readlink(here)  # noqa: PTH115  see above
            rest += target.split("/")[::-1]
            done = [] if target.startswith("/") else done
    return "/".join([root, *done])


def _target(real: str) -> str:
    if os.path.islink(real):  # noqa: PTH114  a string
        real = os.path.realpath(real)
    return real.rpartition("/")[2]


def _is_same(first: str, second: str) -> bool:
    try:
        return os.path.samefile(first, second)  # noqa: PTH121  strings
    except OSError:
        return False
