"""Read which libraries lie in the NVIDIA packages' folders, and the versions they state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

from envdoctor.compatibility import NvidiaLibrary, nvidia_libraries
from envdoctor.facts import (
    FactSet,
    InterpreterFact,
    LibraryFolder,
    LibraryFoldersFact,
    RecordsFact,
)
from envdoctor.probes.files import UnreadableError, list_folder, open_regular, read_head

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from envdoctor.probes.subject import Subject

_HEADER_BYTES = 16 * 1024
"""The defines lie within the first 7 kB of every header read."""

_DEFINE = re.compile(rb"^\s*#\s*define\s+(\w+)\s+(\d{1,9})\b", re.MULTILINE)
_VERSION = re.compile(rb"\d{1,4}(?:\.\d{1,4}){1,3}(?:\+cuda\d{1,2}\.\d{1,2})?")
_MAX_LIBRARY_BYTES = 4 * 1024**3
_BLOCK = 1024 * 1024
_MAX_BLOCKS = 32
_MAX_TEXT = 128


def read_library_folders(subject: Subject, facts: FactSet) -> LibraryFoldersFact:
    """Look where each NVIDIA package that torch uses puts its libraries.

    Versions are read only where RECORD does not tell that the files are those of the package.
    """
    del subject
    records = facts.need(RecordsFact)
    shared = {name for group in records.shared if group.num_conflicting for name in group.owners}
    certain = {
        files.name
        for files in records.distributions
        if not files.error and not files.metadata_edited and files.name not in shared
    }
    sites = facts.need(InterpreterFact).site_packages
    return LibraryFoldersFact(
        folders=tuple(found for site in sites for found in _folders_in(site, certain))
    )


def _folders_in(site: str, certain: Collection[str]) -> Iterator[LibraryFolder]:
    present = frozenset(list_folder(f"{site}/nvidia"))
    for library in nvidia_libraries():
        is_certain = any(map(library.is_package, certain))
        for folder in library.folders:
            if folder.rpartition("/")[2] in present:
                path = f"{site}/{folder}"
                files = tuple(list_folder(f"{path}/lib"))
                yield LibraryFolder(
                    package=library.package,
                    path=path,
                    files=files,
                    header_version="" if is_certain else _header_version(path, library),
                    stated_version="" if is_certain else _stated_version(path, files, library),
                )


def _header_version(path: str, library: NvidiaLibrary) -> str:
    if not library.header:
        return ""
    head = read_head(f"{path}/{library.header}", _HEADER_BYTES)
    values = {name.decode(): int(value) for name, value in _DEFINE.findall(head)}
    if library.packed in values:
        number = values[library.packed]
        return f"{number // 1000}.{number % 1000 // 10}"
    if library.macros and all(name in values for name in library.macros):
        return ".".join(str(values[name]) for name in library.macros)
    return ""


def _stated_version(path: str, files: tuple[str, ...], library: NvidiaLibrary) -> str:
    """Return the version behind a library's mark, such as `NCCL version `."""
    names = [name for name in files if library.is_one(name)] if library.mark else []
    for name in names:
        try:
            stream = open_regular(f"{path}/lib/{name}", limit=_MAX_LIBRARY_BYTES)
        except UnreadableError:
            continue
        if stream is not None:
            with stream:
                return _version_in(stream, library.mark.encode())
    return ""


def _version_in(stream: BinaryIO, mark: bytes) -> str:
    """Return the first version behind a mark in the part of a library that holds its texts."""
    tail = b""
    for _ in range(_MAX_BLOCKS):
        block = stream.read(_BLOCK)
        if not block:
            break
        text = tail + block
        at = text.find(mark)
        while at != -1:
            if match := _VERSION.match(text, at + len(mark)):
                return match[0].decode()
            at = text.find(mark, at + 1)
        tail = text[-_MAX_TEXT:]
    return ""
