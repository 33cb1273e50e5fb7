"""Read what files of compile caches say about themselves; nothing is unpickled, loaded or run."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import struct
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.probes.build_keys import compact
from envdoctor.probes.elf import ElfError, read_headers, sections_end

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_BYTES = 512 * 1024**2
"""The largest file that is read whole."""

_PROTO, _STOP = b"\x80", b"."
_BLOCK, _NEAR, _ELF_HEADER = 16 * 1024, 4096, 64
_TORCH, _SYSTEM = b"] torch_version: ", b"] system_info[hash]: "
_DEVICE = b"] system_info[device]: {'name': '"
_NAME = re.compile(rb"([^'\n]{1,120})'")
_KEY = re.compile(r"[a-z2-7]{51}")
_HEX = re.compile(r"[0-9a-f]{64}")
_EM_CUDA, _ELFCLASS64 = 190, 2
_PYTHON = re.compile(r"\.cpython-(\d)(\d+)-")
_CUBIN = struct.Struct("<4sBxxxB7xHH4x8xQQIxxHHHHxx")
"""Magic, class, ABI version, type, machine, offsets of programs and sections, flags, their sizes
and numbers."""

_NEW_ABI = 8


class Saying(NamedTuple):
    """What a file says.

    Args:
        fault: What is wrong with it by itself; empty if nothing is.
        torch: Prefix by which builds of torch mark their pickles; empty if it says none.
        system: Hash of device, CUDA and Triton; empty if it says none.
        device: Name of the GPU it was compiled for; empty if it says none.
        triton: Version of Triton; empty if it says none.
        arch: Compute capability times ten, such as 90; 0 if it says none.
        machine: As `uname -m` spells it; empty if it says none.
        python: Such as `3.11`; empty if it says none.
        children: Paths of a Triton group, by name; None of other files.
    """

    fault: str = ""
    torch: str = ""
    system: str = ""
    device: str = ""
    triton: str = ""
    arch: int = 0
    machine: str = ""
    python: str = ""
    children: Mapping[str, str] | None = None


def open_regular(path: str) -> int:
    """Open a file for reading, following no link and waiting for nobody; the caller closes it.

    Raises:
        OSError: It is missing, a link, or cannot be read.
    """
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)


def read_whole(path: str, *, limit: int = MAX_BYTES) -> bytes:
    """Return a regular file's content; a link is not followed.

    Raises:
        OSError: It is missing, no regular file, too large, or cannot be read.
    """
    descriptor = open_regular(path)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise OSError(0, "not a regular file, or too large")
        content = os.read(descriptor, status.st_size + 1)
        while len(content) > status.st_size and (part := os.read(descriptor, _BLOCK)):
            content += part  # it grows while it is read
            if len(content) > limit:
                raise OSError(0, "too large")
        return content
    finally:
        os.close(descriptor)


def read_marks(descriptor: int, size: int, *, limit: int) -> tuple[bytes, int]:
    """Return a pickle's first byte, the part of it that holds what it says, and its last byte.

    Torch writes the lines about itself and the system one after another, the system's hash last.
    What comes before them can be megabytes, what comes after them is not read.

    Args:
        descriptor: Open for reading.
        size: Of the file in bytes, at least 1.
        limit: Bytes to read, about; 0 for the first and the last one alone.

    Returns:
        Those bytes, as if they were all of it, and how many were read.

    Raises:
        OSError: It cannot be read.

    Source: torch/_inductor/codecache.py, `FxGraphHashDetails` and `CacheBase.get_system`, 2.11 to
    2.15, read 2026-11-30.
    """
    ends = os.pread(descriptor, 1, 0), os.pread(descriptor, 1, size - 1)
    at, window = 0, b""
    # a small block first: in most pickles they stand near the beginning
    while at < min(size, limit) and (block := os.pread(descriptor, max(_BLOCK, at), at)):
        at += len(block)
        window = window[-_NEAR:] + block
        if _is_told(window):
            return ends[0] + window + ends[1], at
    # not in this order, or not within a window: all of it, as far as that goes
    whole = os.pread(descriptor, min(size, limit), 0) if 0 < size <= limit else b""
    return (whole or b"".join(ends)), at + len(whole)


def _is_told(content: bytes) -> bool:
    at = content.find(_SYSTEM)
    return 0 <= at <= len(content) - len(_SYSTEM) - 64 and _TORCH in content[:at]


def pickle_saying(content: bytes, *, name: str = "") -> Saying:
    """Return what a pickle of Inductor's cache says.

    Args:
        content: The file's bytes.
        name: Its name, to hold the content against; empty to leave that out.

    Source: torch/_inductor/codecache.py 2.11 to 2.15: the name is the compact key of the content,
    and the lines from which the entry's key was made stand in it as text.
    """
    if not content.startswith(_PROTO) or not content.endswith(_STOP):
        return Saying(fault="no whole pickle: cut short or overwritten")
    if name and compact(content) != name:
        return Saying(fault="its content is not the one that its name stands for")
    return Saying(
        torch=_before(content, _TORCH, _KEY, 51),
        system=_after(content, _SYSTEM, _HEX, 64),
        device=_device(content),
    )


def _device(content: bytes) -> str:
    """Return the GPU's name from the line that stands just before the system's hash, if any."""
    system = content.find(_SYSTEM)
    near = (max(system - _NEAR, 0), system + _NEAR) if system >= 0 else (0, len(content))
    at = content.find(_DEVICE, *near)
    match = _NAME.match(content, at + len(_DEVICE)) if at >= 0 else None
    return match[1].decode("utf-8", "replace") if match else ""


def _before(content: bytes, mark: bytes, wanted: re.Pattern[str], length: int) -> str:
    at = content.find(mark)
    text = content[max(at - length, 0) : at].decode("ascii", "replace") if at >= 0 else ""
    return text if wanted.fullmatch(text) else ""


def _after(content: bytes, mark: bytes, wanted: re.Pattern[str], length: int) -> str:
    at = content.find(mark)
    start = at + len(mark)
    text = content[start : start + length].decode("ascii", "replace") if at >= 0 else ""
    return text if wanted.fullmatch(text) else ""


def library_saying(read: Callable[[int, int], bytes], size: int, *, name: str = "") -> Saying:
    """Return what a shared object's headers say.

    Args:
        read: Returns up to so many bytes, its second argument, at an offset, its first.
        size: Of all of it, in bytes.
        name: The file's.

    Raises:
        OSError: It cannot be read.
    """
    try:
        machine, _ = read_headers(read, size)
    except ElfError as error:
        return Saying(fault=str(error))
    if sections_end(read(0, _ELF_HEADER)) > size:
        return Saying(fault="its section headers are not there: cut short")
    match = _PYTHON.search(name) if ".cpython-" in name else None
    return Saying(machine=machine, python=f"{match[1]}.{match[2]}" if match else "")


def cubin_saying(content: bytes) -> Saying:
    """Return what a compiled GPU program's ELF header says.

    Source: System V ABI for the header; llvm/BinaryFormat/ELF.h for e_flags, read 2026-11-30: the
    architecture is the low byte, or the second one from ABI version 8 on.
    """
    if len(content) < _CUBIN.size:
        return Saying(fault="its code ends early")
    magic, wide, abi, _, machine, programs, sections, flags, *sizes = _CUBIN.unpack_from(content)
    if magic != b"\x7fELF" or wide != _ELFCLASS64:
        return Saying(fault="its code is no ELF object")
    if machine != _EM_CUDA:
        return Saying(fault=f"its code is for ELF machine {machine}, not for a GPU of NVIDIA")
    if max(programs + sizes[0] * sizes[1], sections + sizes[2] * sizes[3]) > len(content):
        return Saying(fault="its code ends early")
    return Saying(arch=(flags >> 8 if abi >= _NEW_ABI else flags) & 0xFF)


def metadata_saying(content: bytes) -> Saying:
    """Return what the JSON beside a Triton kernel says, or that of a group of files.

    Source: triton/compiler/compiler.py and runtime/cache.py 3.6 and 3.9.
    """
    try:
        data = json.loads(content)
    # json raises ValueError for bad UTF-8 as well, RecursionError for deep nesting
    except (ValueError, RecursionError):
        return Saying(fault="no valid JSON: cut short?")
    if not isinstance(data, dict):
        return Saying(fault="no JSON object")
    children = data.get("child_paths")
    if isinstance(children, dict):
        paths = {str(name): path for name, path in children.items() if isinstance(path, str)}
        return Saying(children=paths)
    target = data.get("target")
    arch = target.get("arch") if isinstance(target, dict) else None
    version = data.get("triton_version")
    return Saying(
        triton=version if isinstance(version, str) else "",
        arch=arch if isinstance(arch, int) and not isinstance(arch, bool) else 0,
    )


def header_saying(first: bytes) -> Saying:
    """Return whether a precompiled C++ header is one, by its first four bytes or more.

    Source: gcc/c-family/c-pch.cc and clang/Serialization/ASTBitCodes.h, read 2026-11-30.
    """
    return Saying() if first[:4] in (b"gpch", b"CPCH") else Saying(fault="no precompiled header")


def autotune_saying(content: bytes) -> Saying:
    """Return what Inductor's records of tuning say."""
    data: Any
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return Saying(fault="no valid JSON: cut short?")
    system = data.get("system") if isinstance(data, dict) else None
    device = system.get("device") if isinstance(system, dict) else None
    name = device.get("name") if isinstance(device, dict) else None
    return Saying(device=name if isinstance(name, str) else "")


def source_saying(content: bytes, *, is_python: bool) -> Saying:
    """Return whether generated source is whole, as far as text tells it."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return Saying(fault="no UTF-8 text")
    if "\0" in text:
        return Saying(fault="text with null bytes")
    if is_python:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return Saying(fault="Python that does not parse: cut short?")
    return Saying()
