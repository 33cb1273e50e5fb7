"""Flat sets of files: a folder, or one tar archive."""

from __future__ import annotations

import os
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Protocol

from envdoctor.errors import IntegrityError
from envdoctor.probes.files import UnreadableError, list_folder, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SUFFIX = ".tar"
_LIMIT_BYTES = 2**40
_CHUNK_BYTES = 2**20


class Readable(Protocol):
    """Whatever bytes come from."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most so many."""


class Writer(Protocol):
    """Takes files, one after the other."""

    def add(self, name: str, size: int, stream: Readable, /) -> None:
        """Take a file of this many bytes."""


class Reader(Protocol):
    """Gives files by name."""

    names: tuple[str, ...]

    def open(self, name: str, /) -> BinaryIO:
        """Open one of the names."""


@contextmanager
def writing(target: Path) -> Iterator[Writer]:
    """Write into a folder, or an archive that has its name only once it is complete."""
    if target.suffix != SUFFIX:
        target.mkdir(parents=True, exist_ok=True)
        yield _FolderWriter(target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with tarfile.open(temporary, "w:", format=tarfile.PAX_FORMAT) as archive:
            yield _TarWriter(archive)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def reading(source: Path) -> Iterator[Reader]:
    """Read a folder or an archive.

    Raises:
        IntegrityError: It is neither, or holds anything but plain files without folders.
    """
    if source.is_dir():
        yield _FolderReader(source)
        return
    try:
        with tarfile.open(source, "r:*") as archive:
            yield _TarReader(archive, _members(archive, source))
    except (tarfile.TarError, EOFError) as error:
        raise _broken(f"{source} is no folder and no whole tar archive") from error


class _FolderWriter:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, _size: int, stream: Readable, /) -> None:
        temporary = self._folder / f".{name}.tmp"
        try:
            with temporary.open("wb") as out:
                while chunk := stream.read(_CHUNK_BYTES):
                    out.write(chunk)
            temporary.replace(self._folder / name)
        finally:
            temporary.unlink(missing_ok=True)


class _TarWriter:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def add(self, name: str, size: int, stream: Readable, /) -> None:
        # No owner and no time: equal files make equal archives.
        info = tarfile.TarInfo(name)
        info.size = size
        self._archive.addfile(info, stream)  # type: ignore[arg-type]  # it needs read alone


class _FolderReader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names = tuple(list_folder(folder))

    def open(self, name: str, /) -> BinaryIO:
        try:
            stream = open_regular(self._folder / name, limit=_LIMIT_BYTES)
        except UnreadableError as error:
            raise _broken(f"{self._folder / name}: {error}") from error
        if stream is None:
            raise _broken(f"{self._folder / name} is missing")
        return stream


class _TarReader:
    def __init__(self, archive: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo]) -> None:
        self._archive = archive
        self._members = members
        self.names = tuple(members)

    def open(self, name: str, /) -> BinaryIO:
        stream = self._archive.extractfile(self._members[name])
        if stream is None:
            raise _broken(f"{name} is no plain file")
        return stream  # type: ignore[return-value]  # a buffered reader of bytes


def _members(archive: tarfile.TarFile, source: Path) -> dict[str, tarfile.TarInfo]:
    """Return what an archive holds, by name; a name is never used as a path."""
    found: dict[str, tarfile.TarInfo] = {}
    for member in archive.getmembers():
        name = os.fsdecode(member.name).removeprefix("./")
        if member.isdir() and name in {"", "."}:
            continue
        if "/" in name or not member.isreg() or name in found:
            raise _broken(
                f"{source} holds {member.name!r}, wanted plain files, no folders or links"
            )
        found[name] = member
    return found


def _broken(message: str) -> IntegrityError:
    return IntegrityError(message, reference="bundle-not-valid")
