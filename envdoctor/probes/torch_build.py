"""Read what torch was built for, without importing it."""

from __future__ import annotations

import ast
import mmap
import os
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.facts import (
    DistributionsFact,
    FactSet,
    InterpreterFact,
    TorchBuildFact,
    Unavailable,
)
from envdoctor.probes.files import UnreadableError, is_folder, read_text

if TYPE_CHECKING:
    from envdoctor.probes.subject import Subject

_JSON_LIMIT = 1024 * 1024
_ARCH = re.compile(rb"\0((?:sm|compute)_\d+[af]?(?: (?:sm|compute)_\d+[af]?)*)\0")


def read_torch_build(subject: Subject, facts: FactSet) -> TorchBuildFact:
    """Read `torch/version.py` as text and the architecture list out of libtorch_python.so."""
    del subject
    sites = facts.need(InterpreterFact).site_packages
    folders = [path for site in sites if is_folder(path := Path(site) / "torch")]
    # one without version.py is broken or something else of that name; the next may not be
    whole = (path for path in folders if (path / "version.py").exists())
    folder = next(whole, folders[0] if folders else None)
    if folder is None:
        return TorchBuildFact(path=None)
    try:
        values = parse_version_file(read_text(folder / "version.py") or "")
    except UnreadableError:
        values = {}
    return TorchBuildFact(
        path=str(folder),
        version=values.get("__version__"),
        cuda=values.get("cuda"),
        hip=values.get("hip") or values.get("rocm"),
        arch=read_arch_list(folder / "lib/libtorch_python.so") if values.get("cuda") else (),
        xpu=values.get("xpu"),
        has_cuda_library=(folder / "lib/libtorch_cuda.so").exists(),
        variant=_read_variant(facts),
    )


def _read_variant(facts: FactSet) -> tuple[str, ...]:
    """Return the properties of torch's wheel variant; the file is there only if it is one."""
    installed = facts.get(DistributionsFact)
    dist = None if isinstance(installed, Unavailable) else installed.find("torch")
    try:
        text = read_text(f"{dist.path}/variant.json", limit=_JSON_LIMIT) if dist else None
    except UnreadableError:
        text = None
    return parse_variant(text) if text else ()


def parse_variant(text: str) -> tuple[str, ...]:
    """Return the properties that a `variant.json` gives to the one variant it describes.

    Source: PEP 825 (draft), read 2026-11-29.
    """
    import json  # noqa: PLC0415  few environments need it

    try:
        variants = json.loads(text)["variants"]
        return tuple(
            f"{namespace} :: {feature} :: {value}"
            for features_of in variants.values()
            for namespace, features in features_of.items()
            for feature, values in features.items()
            for value in values
        )
    # json raises RecursionError for deep nesting
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ()


def parse_version_file(text: str) -> dict[str, str]:
    """Return the string constants that a `version.py` assigns; empty if it is no Python.

    METADATA's version lacks the local tag in wheels from PyPI, so only this file tells the build.
    """
    try:
        tree = ast.parse(text)
    # ast.parse raises these for null bytes, bad syntax and deep nesting
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    values: dict[str, str] = {}
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value)))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(value)))
            ):
                values[name] = value
            case _:
                pass
    return values


def read_arch_list(library: Path) -> tuple[str, ...]:
    """Return the GPU architectures compiled into torch; empty if they cannot be found.

    The list is one string in `.rodata` of libtorch_python.so, the one that
    `torch._C._cuda_getArchFlags` returns. Searching that section alone takes milliseconds.
    """
    try:
        descriptor = os.open(library, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ()
    with os.fdopen(descriptor, "rb") as stream:
        try:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return ()
        with data:
            start, end = _rodata(data)
            # Regular expressions over the whole megabyte are slow; a plain find is not.
            hit = data.find(b"\0sm_", start, end)
            while hit != -1:
                if match := _ARCH.match(data[hit : min(end, hit + 4096)]):
                    return tuple(match[1].decode("ascii").split())
                hit = data.find(b"\0sm_", hit + 1, end)
    return ()


def _rodata(data: mmap.mmap) -> tuple[int, int]:
    """Return the offsets of `.rodata`; both 0 if the section table is damaged."""
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        return 0, 0
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names_index = struct.unpack_from("<HHH", data, 58)
    if size != 64 or names_index >= count or table + 64 * count > len(data):
        return 0, 0
    sections = [struct.unpack_from("<IIQQQQ", data, table + 64 * index) for index in range(count)]
    names = sections[names_index][4]
    for name, _, _, _, offset, length in sections:
        if data[names + name : names + name + 8] == b".rodata\0":
            return offset, min(offset + length, len(data))
    return 0, 0
