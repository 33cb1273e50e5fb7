"""What a compile cache holds, sorted into entries by the names of its files alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RootKind = Literal["inductor", "headers", "triton", "flashinfer", "cuda"]
EntryKind = Literal["graph", "code", "kernel", "autotune", "lock", "temporary", "other"]
"""`graph` is a pickle of FX graph or AOTAutograd, `code` what Inductor wrote and compiled,
`kernel` a folder of Triton's. `other` is what bears no name that the cache's owner gives: it may be
anything, so nothing is said against it."""

COUNTED = frozenset({"graph", "code", "kernel", "autotune", "other"})
"""Kinds that hold something; locks and temporaries are left by the way."""

_NAME = r"[a-z2-7]{51}"
_GRAPH = re.compile(
    rf"(?:fxgraph/[a-z2-7]{{2}}/f{_NAME}|aotautograd/a{_NAME})/(?P<name>[^/]+)", re.ASCII
)
_CODE = re.compile(rf"([a-z0-9]{{2}}/c{_NAME})\.[^/]+", re.ASCII)
_HEADER = re.compile(rf"(c{_NAME})\.[^/]+", re.ASCII)
_TUNED = re.compile(r"[a-z0-9]{2}/[a-z0-9_]+\.best_config|cache/[0-9a-f]{64}", re.ASCII)
_LOCK = re.compile(r"locks/[A-Za-z0-9_.-]+\.lock", re.ASCII)
_KEY = r"[A-Za-z0-9_-]{43,64}"
"""Triton's keys: 52 characters of base32, earlier 43 of base64 or 64 of hex."""

_KERNEL = re.compile(rf"({_KEY})/.+", re.ASCII)
_NESTED_KERNEL = re.compile(rf"(triton/\d+/{_KEY}|[A-Z2-7]{{52}})/.+", re.ASCII)
"""Below Inductor's folder, also where TRITON_CACHE_DIR names the same folder."""

_OPERATOR = re.compile(r"((?:[^/]+/)*cached_ops/[^/]+)/[^/]+", re.ASCII)
_TEMPORARY = re.compile(
    r"(?P<entry>(?:.*?/)?"
    r"(?:\.(?P<pid>\d+)\.\d+\.tmp|tmp\.pid_(?P<tpid>\d+)_[^/]+|tmp\.[0-9a-f-]{36}))(?:/.*)?",
    re.ASCII,
)
"""Inductor's `.PID.THREAD.tmp`, Triton's `tmp.pid_PID_UUID/`, the bundler's `tmp.UUID/`."""


class CachedFile(NamedTuple):
    """One file below a cache's root, as `lstat` tells it.

    Args:
        path: Below the root.
        size: Bytes.
        mtime_ns: When it was last written.
        mode: Type and permissions.
        uid: Its owner.
    """

    path: str
    size: int
    mtime_ns: int
    mode: int
    uid: int


class Entry(NamedTuple):
    """Files that belong together: removing one of them makes the others useless.

    Args:
        path: Of the file or folder below the root; of code, without the suffixes of its files.
        kind: What it is.
        files: Sorted by path.
        pid: Who was writing a temporary; 0 for other kinds.
    """

    path: str
    kind: EntryKind
    files: tuple[CachedFile, ...]
    pid: int = 0

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)


def group(kind: RootKind, files: Iterable[CachedFile]) -> list[Entry]:
    """Sort the files of a cache into entries, by path."""
    found: dict[tuple[str, EntryKind], list[CachedFile]] = {}
    for file in files:
        found.setdefault(name_of(kind, file.path), []).append(file)
    return [
        Entry(path, what, tuple(sorted(members)), _pid(path) if what == "temporary" else 0)
        for (path, what), members in sorted(found.items())
    ]


def name_of(kind: RootKind, path: str) -> tuple[str, EntryKind]:
    """Return the entry that a file belongs to, by its path below the root, and what that is."""
    found = _temporary(path) if "tmp" in path else None
    return found or _NAMERS[kind](path)


def _temporary(path: str) -> tuple[str, EntryKind] | None:
    match = _TEMPORARY.fullmatch(path)
    return (match["entry"], "temporary") if match else None


def _pid(path: str) -> int:
    match = _TEMPORARY.fullmatch(path)
    digits = (match["pid"] or match["tpid"]) if match else ""
    return int(digits) if len(digits) < 10 else 0  # noqa: PLR2004  a pid of Linux has 7 digits


def _inductor(path: str) -> tuple[str, EntryKind]:
    """Name the entry of a file in Inductor's cache.

    Only names that torch gives count: the variable may name a folder that holds other things too.

    Source: torch/_inductor/codecache.py 2.9 to 2.15, read 2026-11-29.
    """
    if path.startswith("/c", path.find("/")) and (match := _CODE.fullmatch(path)):
        return (path, "autotune") if path.endswith(".best_config") else (match[1], "code")
    if _GRAPH.fullmatch(path):
        return path, "graph"
    if match := _NESTED_KERNEL.fullmatch(path):
        return match[1], "kernel"
    if _LOCK.fullmatch(path):
        return path, "lock"
    return path, "autotune" if _TUNED.fullmatch(path) else "other"


def _headers(path: str) -> tuple[str, EntryKind]:
    """Name the entry of a file in Inductor's folder of precompiled headers."""
    if match := _HEADER.fullmatch(path):
        return match[1], "code"
    return path, "lock" if _LOCK.fullmatch(path) else "other"


def _triton(path: str) -> tuple[str, EntryKind]:
    """Name the entry of a file in Triton's own cache: one folder a key."""
    match = _KERNEL.fullmatch(path)
    return (match[1], "kernel") if match else (path, "other")


def _flashinfer(path: str) -> tuple[str, EntryKind]:
    """Name the entry of a file in FlashInfer's cache: one folder an operator."""
    match = _OPERATOR.fullmatch(path)
    return (match[1], "code") if match else (path, "other")


def _loose(path: str) -> tuple[str, EntryKind]:
    """Name the entry of a file in a cache whose layout says nothing."""
    return path, "other"


_NAMERS: dict[RootKind, Callable[[str], tuple[str, EntryKind]]] = {
    "inductor": _inductor,
    "headers": _headers,
    "triton": _triton,
    "flashinfer": _flashinfer,
    "cuda": _loose,
}
