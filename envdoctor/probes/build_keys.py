"""Recompute the keys by which torch and Triton tell their builds apart, importing neither."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import pickle
from typing import TYPE_CHECKING

from envdoctor.probes.digests import blocks
from envdoctor.probes.files import list_folder
from envdoctor.value import value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PREFIX_LENGTH = 51
"""Characters of torch's compact keys: base32 of a sha256 without its padding."""

_BLOCK = 1024 * 1024
_PROTOCOL, _NEWER_PROTOCOL, _NEWER_SINCE = 4, 5, (3, 14)
_INDUCTOR_FILES = (
    "_inductor/codegen/aoti_runtime/interface.cpp",
    "_inductor/codegen/aoti_runtime/streams.h",
    "_inductor/script.ld",
)
_STREAMS_SINCE = (2, 14)
_KNOWN_TORCH = ((2, 10), (2, 15))
_KNOWN_TRITON = ((3, 6), (3, 9))
"""First and last release whose own key was compared with the one computed here."""


@value
class Module:
    """A module as an importer would find it: its dotted name, its file, True for a package."""

    name: str
    path: str
    is_package: bool


def torch_key(torch: Path, *, version: str, suffixes: Sequence[str]) -> bytes:
    """Return what `torch._inductor.codecache.torch_key()` returns in that installation.

    Args:
        torch: The package's folder.
        version: Its `__version__`, such as `2.13.0+cpu`.
        suffixes: As `module_suffixes` gives them for the interpreter that imports it.

    Raises:
        OSError: A file cannot be read.

    Source: torch/_inductor/codecache.py, 2.11 to 2.15, read 2026-11-29: every module below torch,
    then files that `_inductor` includes.
    """
    state = hashlib.sha256(version.encode())
    for module in _modules(str(torch), "", suffixes):
        state.update(module.name.encode())
        _feed(state, module.path)
    for name in _INDUCTOR_FILES:
        is_known = "streams" not in name or _release(version) >= _STREAMS_SINCE
        if is_known and (torch / name).is_file():
            _feed(state, str(torch / name))
    return state.digest()


def triton_key(triton: Path, *, version: str, suffixes: Sequence[str]) -> str:
    """Return what Triton's `triton_key()` returns in that installation.

    Args:
        triton: The package's folder.
        version: Its `__version__`.
        suffixes: As `module_suffixes` gives them for the interpreter that imports it.

    Raises:
        OSError: A file cannot be read.

    Source: triton/runtime/cache.py 3.6 and 3.9, read 2026-11-29.
    """
    parts = [_digest(f"{triton}/runtime/cache.py")]
    for folder in ("compiler", "backends"):
        parts += _walked(f"{triton}/{folder}", suffixes)
    parts.append(_digest(f"{triton}/_C/libtriton.so"))
    parts += _walked(f"{triton}/language", suffixes)
    return version + "-".join(parts)


def is_known(package: str, version: str) -> bool:
    """Tell whether the key of a release is computed as here; others may count other files."""
    first, last = _KNOWN_TORCH if package == "torch" else _KNOWN_TRITON
    return first <= _release(version) <= last


def can_import(torch: Path, suffixes: Sequence[str]) -> bool:
    """Tell whether torch's extension module, if there is one, is for an interpreter's suffixes."""
    found = [name for name in list_folder(torch) if name.startswith("_C.cpython-")]
    return not found or f"_C{suffixes[0]}" in found


def entry_prefix(key: bytes, *, python: str) -> str:
    """Return the text before `] torch_version: ` in every pickle that a build of torch writes.

    Args:
        key: The build's `torch_key`.
        python: Major and minor version of the interpreter, whose default pickles are of.
    """
    stream = io.BytesIO()
    protocol = _NEWER_PROTOCOL if _release(python) >= _NEWER_SINCE else _PROTOCOL
    pickler = pickle.Pickler(stream, protocol)
    pickler.fast = True  # as torch's own pickler for keys
    pickler.dump(key)
    return compact(stream.getvalue())


def compact(content: bytes) -> str:
    """Return torch's compact key of bytes: the file name of a pickle in Inductor's cache."""
    digest = base64.b32encode(hashlib.sha256(content).digest())[:PREFIX_LENGTH]
    return digest.decode("ascii").lower()


def module_suffixes(python: str, machine: str) -> tuple[str, ...]:
    """Return the suffixes of modules in the order in which CPython on Linux looks for them.

    Args:
        python: Major and minor version, such as `3.11`.
        machine: As `uname -m` spells it.
    """
    tag = "".join(python.split(".")[:2])
    extensions = (f".cpython-{tag}-{machine}-linux-gnu.so", ".abi3.so", ".so")
    return (*extensions, ".py", ".pyc")


def _modules(folder: str, prefix: str, suffixes: Sequence[str]) -> Iterator[Module]:
    """Yield what `pkgutil.iter_modules` finds, sorted by name, packages before what they hold."""
    for module in sorted(_children(folder, prefix, suffixes), key=lambda item: item.name):
        yield module
        if module.is_package:
            inner = module.path.rpartition("/")[0]
            yield from _modules(inner, f"{module.name}.", suffixes)


def _children(folder: str, prefix: str, suffixes: Sequence[str]) -> Iterator[Module]:
    names = list_folder(folder)
    by_length = sorted(suffixes, key=len, reverse=True)
    seen: set[str] = set()
    for name in names:
        found = next((name[: -len(end)] for end in by_length if name.endswith(end)), "")
        if found == "__init__" or found in seen:
            continue
        is_package = False
        if not found:
            inner = list_folder(f"{folder}/{name}") if "." not in name else []
            is_package = any(_stem(one, by_length) == "__init__" for one in inner)
            found = name if is_package else ""
        if found and "." not in found:
            seen.add(found)
            if path := _origin(folder, found, suffixes):
                yield Module(prefix + found, path, path.endswith(tuple(_inits(found, suffixes))))


def _stem(name: str, by_length: Sequence[str]) -> str:
    return next((name[: -len(end)] for end in by_length if name.endswith(end)), "")


def _inits(name: str, suffixes: Sequence[str]) -> Iterator[str]:
    return (f"/{name}/__init__{end}" for end in suffixes)


def _origin(folder: str, name: str, suffixes: Sequence[str]) -> str:
    """Return the file that a finder takes for a module: a package's before a module's."""
    packages = (f"{folder}/{name}/__init__{end}" for end in suffixes)
    modules = (f"{folder}/{name}{end}" for end in suffixes)
    candidates = [*packages, *modules] if os.path.isdir(f"{folder}/{name}") else modules  # noqa: PTH112
    return next((path for path in candidates if os.path.isfile(path)), "")  # noqa: PTH113


def _walked(folder: str, suffixes: Sequence[str]) -> Iterator[str]:
    """Yield the digests of what `pkgutil.walk_packages` finds, which is in the order of names."""
    for module in _listed(folder, "", suffixes):
        yield _digest(module.path)


def _listed(folder: str, prefix: str, suffixes: Sequence[str]) -> Iterator[Module]:
    for module in _children(folder, prefix, suffixes):
        yield module
        if module.is_package:
            yield from _listed(module.path.rpartition("/")[0], f"{module.name}.", suffixes)


def _digest(path: str) -> str:
    state = hashlib.sha256()
    _feed(state, path)
    return state.hexdigest()


def _feed(state: hashlib._Hash, path: str) -> None:
    for block in blocks(path, memoryview(bytearray(_BLOCK))):
        state.update(block)


def _release(version: str) -> tuple[int, ...]:
    parts = version.partition("+")[0].split(".")[:2]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)
