"""The manifest of an environment: every file as it was when it passed, and hashes of the whole."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from typing import TYPE_CHECKING

import msgspec

from envdoctor import durable
from envdoctor.probes.digests import digest_of
from envdoctor.probes.distributions import normalised
from envdoctor.probes.files import UnreadableError, read_text
from envdoctor.probes.record import parse_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA_VERSION = 1
_ALGORITHM = "sha256"
_PACKAGES = "site-packages/"
_COMPILED = "__pycache__"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One file or symbolic link.

    Args:
        path: Below the environment's folder.
        mode: Type and permissions, as the kernel gives them.
        size: Bytes.
        mtime_ns: When it was last written.
        digest: `sha256=...` as RECORD writes it; of a link, its target.
        owner: Normalised name of the package that records it; empty for the environment's own.
    """

    path: str
    mode: int
    size: int
    mtime_ns: int
    digest: str
    owner: str


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """Hashes of all files, by which two environments are compared at once.

    Each is the sha256 over the lines `path NUL kind NUL digest`, sorted by path: times, owners and
    permissions other than to execute are left out, and so is compiled bytecode.

    Args:
        algorithm: Of the hashes.
        packages: Of what lies in site-packages; equal on any machine.
        environment: Of everything; equal where the interpreter lies in the same place.
        files: How many there are.
        size: Bytes of all.
    """

    algorithm: str = _ALGORITHM
    packages: str
    environment: str
    files: int
    size: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All files of an environment, sorted by path, compiled bytecode left out.

    Args:
        schema: Version of this document.
        entries: The files.
        tree: Hashes of them.
        outside: The interpreter and its library where they lie outside, by absolute path.
    """

    schema: int = SCHEMA_VERSION
    entries: tuple[Entry, ...]
    tree: Tree
    outside: tuple[Entry, ...] = ()


def make(env: Path) -> Manifest:
    """Write down an environment as it is.

    Digests are those of RECORD where there is one, since reading gigabytes again takes long.

    Raises:
        OSError: A file cannot be read.
    """
    recorded = _recorded(env)
    entries = tuple(
        _entry(env, path, status, recorded.get(path)) for path, status in sorted(scan(env).items())
    )
    outside = tuple(
        _entry(env, str(path), path.stat(), None) for path in interpreter_files(env.resolve())
    )
    return Manifest(entries=entries, tree=tree_of(entries), outside=outside)


def interpreter_files(env: Path) -> list[Path]:
    """Return the base interpreter of an environment, and its library where it has a shared one."""
    python = (env / "bin/python").resolve()
    if not python.is_file() or python.is_relative_to(env):
        return []
    libraries = (python.parent.parent / "lib").glob("libpython3*.so*")
    return [python, *sorted({path.resolve() for path in libraries if path.is_file()})]


def scan(env: Path) -> dict[str, os.stat_result]:
    """Return the state of every file and link below a folder, compiled bytecode left out.

    Raises:
        OSError: A folder cannot be listed.
    """
    found: dict[str, os.stat_result] = {}
    pending = [""]
    while pending:
        parent = pending.pop()
        with os.scandir(env / parent) as entries:
            for entry in entries:
                path = parent + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    found[path] = entry.stat(follow_symlinks=False)
                elif entry.name != _COMPILED:
                    pending.append(f"{path}/")
    return found


def tree_of(entries: tuple[Entry, ...]) -> Tree:
    """Return the hashes of a list of files, whatever its order."""
    everything = {entry.path: _line(entry) for entry in entries}
    packages = {
        inner: line for path, line in everything.items() if (inner := _below_packages(path))
    }
    return Tree(
        packages=_hash(packages),
        environment=_hash(everything),
        files=len(entries),
        size=sum(entry.size for entry in entries),
    )


def write(manifest: Manifest, path: Path) -> None:
    """Write a manifest in one step: either all of it is there, or nothing."""
    # msgspec writes no bytes of a path that are not UTF-8; json does.
    text = json.dumps(msgspec.to_builtins(manifest), separators=(",", ":"))
    durable.replace_text(path, text + "\n", encoding="ascii")


def read(path: Path) -> Manifest | None:
    """Read a manifest; None if there is none or it is not one that this version reads."""
    try:
        found = msgspec.convert(json.loads(path.read_bytes()), Manifest)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return None
    return found if found.schema == SCHEMA_VERSION else None


def _recorded(env: Path) -> dict[str, tuple[str, str, int | None]]:
    """Return owner, digest and size of each file that a RECORD lists."""
    found: dict[str, tuple[str, str, int | None]] = {}
    for info in sorted(env.glob(f"lib/python*/{_PACKAGES}*.dist-info")):
        owner = normalised(info.name.removesuffix(".dist-info").rpartition("-")[0])
        site = info.parent.relative_to(env)
        try:
            rows = parse_rows(read_text(info / "RECORD") or "")
        except UnreadableError:
            continue
        for path, digest, size in rows:
            found[os.path.normpath(f"{site}/{path}")] = (owner, digest, size)
    return found


def _entry(
    env: Path, path: str, status: os.stat_result, recorded: tuple[str, str, int | None] | None
) -> Entry:
    owner, digest, size = recorded or ("", "", None)
    if stat.S_ISLNK(status.st_mode):
        digest = str((env / path).readlink())
    elif not digest.startswith(f"{_ALGORITHM}=") or size != status.st_size:
        digest = digest_of(str(env / path), _ALGORITHM)
    return Entry(path, status.st_mode, status.st_size, status.st_mtime_ns, digest, owner)


def _below_packages(path: str) -> str:
    """Return a path below site-packages; empty if it is not there."""
    before, _, inner = path.partition(_PACKAGES)
    return inner if before.startswith("lib/python") and before.count("/") == 2 else ""  # noqa: PLR2004


def _line(entry: Entry) -> str:
    if stat.S_ISLNK(entry.mode):
        return f"link\0{entry.digest}\n"
    return f"{'program' if entry.mode & stat.S_IXUSR else 'file'}\0{entry.digest}\n"


def _hash(lines: Mapping[str, str]) -> str:
    state = hashlib.sha256()
    for path in sorted(lines, key=os.fsencode):
        state.update(os.fsencode(f"{path}\0{lines[path]}"))
    return state.hexdigest()
