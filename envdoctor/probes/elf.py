"""Read the few ELF headers that tell whether the loader would take a shared object."""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass
from typing import BinaryIO

_MACHINES = {3: "i686", 21: "ppc64le", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_MAX_HEADERS = 256
_MAX_DYNAMIC = 64 * 1024
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_STRTAB, _DT_SONAME = 0, 5, 14


class ElfError(Exception):
    """The file is no shared object that a loader would take; the message says why."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One program header: type, file offset, virtual address and size in the file, in bytes."""

    kind: int
    offset: int
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class ElfHeader:
    """What the header and the dynamic section of a shared object say."""

    machine: str
    soname: str


def read_elf(path: str) -> ElfHeader:
    """Read a shared object's machine and SONAME.

    Raises:
        ElfError: It is no 64-bit little-endian ELF shared object, or its contents end early.
        OSError: It cannot be read.

    Source: System V ABI, chapters 4 and 5.
    """
    # A FIFO without a writer would block a plain open for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ElfError("not a regular file")
        machine, segments = _read_headers(stream, status.st_size)
        return ElfHeader(machine, _read_soname(stream, segments))


def _read_headers(stream: BinaryIO, size: int) -> tuple[str, list[Segment]]:
    header = stream.read(64)
    if not header:
        raise ElfError("an empty file")
    if header[:4] != b"\x7fELF":
        raise ElfError("not an ELF object")
    if len(header) < 64 or header[4:6] != b"\x02\x01":
        raise ElfError("not a 64-bit little-endian ELF object")
    kind, machine = struct.unpack_from("<HH", header, 16)
    if kind != 3:
        raise ElfError(f"ELF type {kind}, not a shared object")
    (offset,) = struct.unpack_from("<Q", header, 32)
    entry_size, count = struct.unpack_from("<HH", header, 54)
    if entry_size != 56 or not 0 < count <= _MAX_HEADERS or offset + 56 * count > size:
        raise ElfError("its program headers are damaged")
    stream.seek(offset)
    table = stream.read(56 * count)
    segments = []
    for index in range(count):
        kind, _, at, address, _, length = struct.unpack_from("<IIQQQQ", table, 56 * index)
        segments.append(Segment(kind, at, address, length))
    ends = [segment.offset + segment.size for segment in segments if segment.kind == _PT_LOAD]
    if not ends or max(ends) > size:
        raise ElfError("its contents end early" if ends else "it has no loadable segment")
    return _MACHINES.get(machine, f"ELF machine {machine}"), segments


def _read_soname(stream: BinaryIO, segments: list[Segment]) -> str:
    dynamic = next((segment for segment in segments if segment.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return ""
    stream.seek(dynamic.offset)
    table = stream.read(min(dynamic.size, _MAX_DYNAMIC))
    entries: dict[int, int] = {}
    for tag, value in struct.iter_unpack("<qQ", table[: len(table) // 16 * 16]):
        if tag == _DT_NULL:
            break
        entries.setdefault(tag, value)
    if _DT_SONAME not in entries or _DT_STRTAB not in entries:
        return ""
    return _string_at(stream, segments, entries[_DT_STRTAB] + entries[_DT_SONAME])


def _string_at(stream: BinaryIO, segments: list[Segment], address: int) -> str:
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
            stream.seek(segment.offset + address - segment.address)
            return stream.read(256).partition(b"\0")[0].decode("utf-8", "replace")
    return ""
