"""What a compile cache holds, sorted into entries by the names of its files alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RootKind = Literal["inductor", "triton", "flashinfer", "cuda"]
EntryKind = Literal["graph", "code", "kernel", "autotune", "lock", "temporary", "other"]
"""`graph` is a pickle of FX graph or AOTAutograd, `code` what Inductor wrote and compiled,
`kernel` a folder of Triton's."""

COUNTED = frozenset({"graph", "code", "kernel", "autotune", "other"})
"""Kinds that hold something; locks and temporaries are left by the way."""

_NAME = r"[a-z2-7]{51}"
_GRAPH = re.compile(
    rf"(?:fxgraph/[a-z2-7]{{2}}/f{_NAME}|aotautograd/a{_NAME})/(?P<name>[^/]+)", re.ASCII
)
_CODE = re.compile(r"(?P<entry>[a-z0-9]{2}/[^./][^/.]*)\.[^/]+", re.ASCII)
_TRITON = re.compile(r"(?P<entry>triton/\d+/[^/]+|[A-Z2-7]{52})/.+", re.ASCII)
"""Below Inductor's folder, also where TRITON_CACHE_DIR names the same folder."""
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

    Source: torch/_inductor/codecache.py 2.9 to 2.15, read 2026-11-29.
    """
    if path.startswith("locks/"):
        return path, "lock"
    if path[2:3] == "/" and (match := _CODE.fullmatch(path)):
        is_tuned = path.endswith(".best_config")
        return (path, "autotune") if is_tuned else (match[1], "code")
    if _GRAPH.fullmatch(path):
        return path, "graph"
    if match := _TRITON.fullmatch(path):
        return match["entry"], "kernel"
    return path, "autotune" if path.startswith("cache/") and path.count("/") == 1 else "other"


def _triton(path: str) -> tuple[str, EntryKind]:
    """Name the entry of a file in Triton's own cache: one folder a key."""
    folder, slash, _ = path.partition("/")
    return (folder, "kernel") if slash else (path, "other")


def _loose(path: str) -> tuple[str, EntryKind]:
    """Name the entry of a file in a cache whose layout says nothing about groups."""
    return path, "lock" if path.endswith((".lock", "/lock")) else "other"


_NAMERS: dict[RootKind, Callable[[str], tuple[str, EntryKind]]] = {
    "inductor": _inductor,
    "triton": _triton,
    "flashinfer": _loose,
    "cuda": _loose,
}
