"""Read what the loader reads first of an ELF object: program headers and dynamic section."""

from __future__ import annotations

import os
import stat
import struct
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

Segment = tuple[int, int, int, int]
"""One program header: type, file offset, virtual address and size in the file, in bytes."""

_MACHINES = {3: "i686", 21: "ppc64le", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_MAX_HEADERS = 256
_MAX_NEEDED = 512
_MAX_DYNAMIC = 64 * 1024
_MAX_STRING = 16 * 1024
_FIRST_READ = 1024
_STRING_READ = 256
_BLOCK = 16 * 1024
_MAX_BLOCK = 32 * 1024 * 1024
_PAGE = 4096
_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC = 1, 2
DT_STRTAB = 5
_DT_NULL, _DT_NEEDED = 0, 1
_DT_SONAME, _DT_RPATH, _DT_RUNPATH = 14, 15, 29
_HEADER = struct.Struct("<16xHH12xQ14xHH6x")
"""Type, machine, offset of the program headers, their size and number."""

_SECTIONS = struct.Struct("<40xQ10xHH2x")
_PROGRAM = struct.Struct("<I4xQQ8xQ16x")


class ElfError(Exception):
    """The file is no shared object that a loader would take; the message says why."""


class ElfHeader(NamedTuple):
    """What the header and the dynamic section of a shared object say.

    A tuple, as all that only probes see: making a dataclass costs 0.6 ms at every start.

    Args:
        machine: As `uname -m` spells it.
        soname: DT_SONAME; empty if it has none.
        needed: DT_NEEDED in their order.
        rpath: DT_RPATH as written, empty if there is none.
        runpath: DT_RUNPATH as written; None if there is none, which decides if RPATH counts.
        identity: Device and inode, by which the loader knows a file it has mapped already.
    """

    machine: str
    soname: str
    needed: tuple[str, ...] = ()
    rpath: str = ""
    runpath: str | None = None
    identity: tuple[int, int] = (0, 0)


class ElfFile:
    """An open ELF object; each part is read when it is asked for, within the file's size.

    Args:
        descriptor: Open for reading; the caller closes it.
        executable: True to accept a program that is no shared object.

    Raises:
        ElfError: It is no 64-bit little-endian ELF object, or its contents end early.
    """

    def __init__(self, descriptor: int, *, executable: bool = False) -> None:
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ElfError("not a regular file")
        self.size = status.st_size
        self.identity = (status.st_dev, status.st_ino)
        kinds = (_ET_DYN, _ET_EXEC) if executable else (_ET_DYN,)
        self.machine, self._segments = read_headers(self.read, self.size, kinds)

    @cached_property
    def dynamic(self) -> dict[int, list[int]]:
        """Return the values of each tag of the dynamic section, in their order."""
        section = next((item for item in self._segments if item[0] == _PT_DYNAMIC), None)
        if section is None:
            return {}
        _, offset, _, size = section
        table = self.read(offset, min(size, _MAX_DYNAMIC))
        values: dict[int, list[int]] = {}
        for tag, value in struct.iter_unpack("<qQ", table[: len(table) // 16 * 16]):
            if tag == _DT_NULL:
                break
            values.setdefault(tag, []).append(value)
        return values

    def header(self) -> ElfHeader:
        """Return what the dynamic section names."""
        find = self.dynamic.get
        wanted = [
            offset
            for tag in (_DT_SONAME, _DT_NEEDED, _DT_RPATH, _DT_RUNPATH)
            for offset in find(tag, ())
        ]
        text = self.strings(wanted)
        return ElfHeader(
            machine=self.machine,
            soname=next((text[at] for at in find(_DT_SONAME, ())), ""),
            needed=tuple(text[at] for at in find(_DT_NEEDED, ())[:_MAX_NEEDED] if text[at]),
            rpath=next((text[at] for at in find(_DT_RPATH, ())), ""),
            runpath=next((text[at] for at in find(_DT_RUNPATH, ())), None),
            identity=self.identity,
        )

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes at a file offset; fewer, or none, at the file's end."""
        if not 0 <= offset < self.size:
            return b""
        return os.pread(self._descriptor, min(length, self.size - offset), offset)

    def at(self, address: int, length: int) -> bytes:
        """Return up to `length` bytes at a virtual address, within its segment."""
        for kind, offset, start, size in self._segments:
            inside = address - start
            if kind == _PT_LOAD and 0 <= inside < size:
                return self.read(offset + inside, min(length, size - inside))
        return b""

    def value(self, tag: int) -> int:
        """Return the value of a tag of the dynamic section; 0 if it is not there."""
        return next(iter(self.dynamic.get(tag, ())), 0)

    def strings(self, offsets: Collection[int]) -> dict[int, str]:
        """Return strings of the dynamic string table by offset; empty where one lies outside."""
        table = self.value(DT_STRTAB)
        if not table or not offsets:
            return dict.fromkeys(offsets, "")
        first, last = min(offsets), max(offsets)
        # One read where the strings lie close together; torch's tables are megabytes.
        reach = min(max(_BLOCK, _PAGE * len(offsets)), _MAX_BLOCK)
        span = last - first + _STRING_READ
        block = self.at(table + first, span) if span <= reach else b""
        found = {}
        for offset in offsets:
            end = block.find(b"\0", offset - first)
            raw = block[offset - first : end] if end >= 0 else self._string_at(table + offset)
            found[offset] = raw.decode("utf-8", "replace")
        return found

    def _string_at(self, address: int) -> bytes:
        found = self.at(address, _STRING_READ)
        if b"\0" not in found:  # search paths may be longer than most strings
            found = self.at(address, _MAX_STRING)
        return found.partition(b"\0")[0]


def read_headers(
    read: Callable[[int, int], bytes], size: int, kinds: tuple[int, ...] = (_ET_DYN,)
) -> tuple[str, list[Segment]]:
    """Return an object's machine, as `uname -m` spells it, and its program headers.

    Args:
        read: Returns up to so many bytes, its second argument, at a file offset, its first.
        size: Of the whole object, in bytes.
        kinds: ELF types to accept.

    Raises:
        ElfError: It is no 64-bit little-endian ELF object of these types, or its contents end
            early.
    """
    first = read(0, _FIRST_READ)
    if not first:
        raise ElfError("an empty file")
    if first[:4] != b"\x7fELF":
        raise ElfError("not an ELF object")
    if len(first) < _HEADER.size or first[4:6] != b"\x02\x01":
        raise ElfError("not a 64-bit little-endian ELF object")
    kind, machine, offset, entry_size, count = _HEADER.unpack_from(first)
    if kind not in kinds:
        raise ElfError(f"ELF type {kind}, not a shared object")
    length = _PROGRAM.size * count
    if entry_size != _PROGRAM.size or not 0 < count <= _MAX_HEADERS or offset + length > size:
        raise ElfError("its program headers are damaged")
    table = first[offset : offset + length]
    if len(table) < length:
        table = read(offset, length)
    segments = list(_PROGRAM.iter_unpack(table[: len(table) // _PROGRAM.size * _PROGRAM.size]))
    end = _loaded_end(segments)
    if not 0 <= end <= size:
        raise ElfError("its contents end early" if end >= 0 else "it has no loadable segment")
    return _MACHINES.get(machine, f"ELF machine {machine}"), segments


def _loaded_end(segments: list[Segment]) -> int:
    """Return where the last loadable segment ends in the file; -1 if there is none."""
    end = -1
    for kind, at, _, length in segments:
        if kind == _PT_LOAD and at + length > end:
            end = at + length
    return end


def sections_end(first: bytes) -> int:
    """Return where the section headers end, the last thing that a linker writes; 0 for none.

    Args:
        first: The object's first 64 bytes or more.
    """
    offset, entry_size, count = _SECTIONS.unpack_from(first)
    return offset + entry_size * count if offset else 0


@contextmanager
def open_elf(path: str, *, executable: bool = False) -> Iterator[ElfFile]:
    """Open an ELF object for reading.

    Args:
        path: Where it is.
        executable: True to accept a program that is no shared object.

    Raises:
        ElfError: It is no 64-bit little-endian ELF object, or its contents end early.
        OSError: It cannot be read.

    Source: System V ABI, chapters 4 and 5.
    """
    # A FIFO without a writer would block a plain open for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield ElfFile(descriptor, executable=executable)
    finally:
        os.close(descriptor)


def read_elf(path: str) -> ElfHeader:
    """Read what a shared object's header and dynamic section say.

    Raises:
        ElfError: It is no 64-bit little-endian ELF shared object, or its contents end early.
        OSError: It cannot be read.
    """
    with open_elf(path) as file:
        return file.header()
