"""Read entries of compile caches: as little of each as its stat allows, or all of it."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.probes.cache_content import (
    Saying,
    autotune_saying,
    cubin_saying,
    header_saying,
    library_saying,
    metadata_saying,
    open_regular,
    pickle_saying,
    read_marks,
    read_whole,
    source_saying,
)
from envdoctor.probes.cache_files import is_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from envdoctor.caches.entries import CachedFile, Entry

_JSON_LIMIT = 4 * 1024**2
_MAY_BE_EMPTY = (".load_ok", ".lock", "/lock", ".log", ".so.failed", ".ninja_log", ".ninja_deps")
_SOURCES = (".cpp", ".h", ".c", ".cu", ".txt", ".ttir", ".ttgir", ".llir", ".ptx", ".source")
_QUICK_CUBIN = 64
_FIRST_READ = 1024


class Reading(NamedTuple):
    """What was read of one entry.

    Args:
        fault: What is wrong with its files by themselves; empty if nothing is.
        fault_path: The file at fault, below the root.
        sayings: What its files say, those that say something.
        digests: sha256 of each file in hex; empty unless all was read.
        moved_from: Folder that a Triton group names its members in, where that is not this one.
        unread: Why a file could not be read; empty if all could.
    """

    fault: str = ""
    fault_path: str = ""
    sayings: tuple[Saying, ...] = ()
    digests: Mapping[str, str] | None = None
    moved_from: str = ""
    unread: str = ""


class Allowance:
    """What may still be read of pickles, which are large.

    Args:
        num_bytes: Of all of them; of those after them only the ends are read.
    """

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes


def read_entry(root: str, entry: Entry, *, deep: bool, allowance: Allowance) -> Reading:
    """Read an entry.

    Args:
        root: The cache's folder.
        entry: As `group` made it.
        deep: True to read and hash every byte; else sizes, headers and small JSON files.
        allowance: How much of pickles to read when not deep; it is less afterwards.
    """
    sayings: list[Saying] = []
    digests: dict[str, str] = {}
    for file in entry.files:
        try:
            said, digest = _read_file(root, entry, file, deep=deep, allowance=allowance)
        except OSError as error:
            return Reading(unread=f"{file.path} cannot be read: {error.strerror}")
        if said.fault and entry.kind != "other":
            return Reading(said.fault, file.path, tuple(sayings), digests)
        if digest:
            digests[file.path] = digest
        if said != _NOTHING:
            sayings.append(said)
    fault, moved = _check_groups(root, entry, sayings) if entry.kind == "kernel" else ("", "")
    return Reading(fault, entry.path if fault else "", tuple(sayings), digests, moved)


_NOTHING = Saying()


def _read_file(
    root: str, entry: Entry, file: CachedFile, *, deep: bool, allowance: Allowance
) -> tuple[Saying, str]:
    """Return what one file says, and its sha256 if all of it was read.

    Raises:
        OSError: It cannot be read.
    """
    path = f"{root}/{file.path}"
    if not is_regular(file):
        kind = "a symbolic link" if stat.S_ISLNK(file.mode) else "no regular file"
        return Saying(fault=kind), ""
    if not file.size:
        is_fine = entry.kind == "lock" or file.path.endswith(_MAY_BE_EMPTY)
        return (_NOTHING, hashlib.sha256().hexdigest()) if is_fine else (Saying("empty"), "")
    if deep:
        content = read_whole(path)
        return _whole(entry, file, content), hashlib.sha256(content).hexdigest()
    return _head(entry, file, path, allowance=allowance), ""


def _whole(entry: Entry, file: CachedFile, content: bytes) -> Saying:
    name = file.path.rpartition("/")[2]
    if entry.kind == "other":
        return _NOTHING
    if entry.kind == "graph":
        return pickle_saying(content, name=name)
    if entry.kind == "autotune":
        return autotune_saying(content)
    if name.endswith(".so"):
        return library_saying(_within(content), len(content), name=name)
    suffix = name[name.rfind(".") :]
    read = _CONTENT.get(suffix)
    return read(content) if read else _NOTHING


_CONTENT: Mapping[str, Callable[[bytes], Saying]] = {
    ".cubin": cubin_saying,
    ".gch": header_saying,
    ".json": metadata_saying,
    ".py": lambda content: source_saying(content, is_python=True),
    **dict.fromkeys(_SOURCES, lambda content: source_saying(content, is_python=False)),
}


def _head(entry: Entry, file: CachedFile, path: str, *, allowance: Allowance) -> Saying:
    name = file.path.rpartition("/")[2]
    if entry.kind == "other":
        return _NOTHING
    if entry.kind == "graph" or name.endswith((".so", ".gch")):
        descriptor = open_regular(path)
        try:
            return _beginning(entry, file, descriptor, allowance=allowance)
        finally:
            os.close(descriptor)
    if name.endswith(".cubin") and file.size < _QUICK_CUBIN:
        return Saying(fault="its code ends early")
    if entry.kind == "autotune" or name.endswith(".json"):
        content = read_whole(path, limit=_JSON_LIMIT)
        return autotune_saying(content) if entry.kind == "autotune" else metadata_saying(content)
    return _NOTHING


def _beginning(entry: Entry, file: CachedFile, descriptor: int, *, allowance: Allowance) -> Saying:
    """Return what a pickle, shared object or precompiled header says in its beginning."""
    if entry.kind == "graph":
        content, num_read = read_marks(descriptor, file.size, limit=allowance.num_bytes)
        allowance.num_bytes = max(allowance.num_bytes - num_read, 0)
        return pickle_saying(content)
    if file.path.endswith(".gch"):
        return header_saying(os.pread(descriptor, 4, 0))
    return library_saying(_reader(descriptor), file.size, name=file.path.rpartition("/")[2])


def _within(content: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, length: content[offset : offset + length]


def _reader(descriptor: int) -> Callable[[int, int], bytes]:
    """Return what reads an open file; its beginning is read once."""
    first = os.pread(descriptor, _FIRST_READ, 0)

    def read(offset: int, length: int) -> bytes:
        if offset + length <= _FIRST_READ:
            return first[offset : offset + length]
        return os.pread(descriptor, length, offset)

    return read


def _check_groups(root: str, entry: Entry, sayings: list[Saying]) -> tuple[str, str]:
    """Hold Triton's groups against the files beside them.

    Returns:
        What is wrong, empty if nothing is; and the folder from which the entry was moved here.
    """
    moved = ""
    names = {file.path.rpartition("/")[2] for file in entry.files}
    here = os.path.abspath(f"{root}/{entry.path}")  # noqa: PTH100  strings all the way
    for name, path in _children(sayings):
        folder, _, last = path.rpartition("/")
        if last not in names:
            return f"its group names {name}, which is not there", ""
        if os.path.realpath(folder) != os.path.realpath(here):
            moved = folder
    has_code = any(name.endswith((".cubin", ".hsaco")) for name in names)
    has_metadata = any(name.endswith(".json") and not name.startswith("__grp__") for name in names)
    if has_code and not has_metadata:
        return "compiled code without its metadata", ""
    return "", moved


def _children(sayings: list[Saying]) -> Iterator[tuple[str, str]]:
    for said in sayings:
        yield from (said.children or {}).items()
