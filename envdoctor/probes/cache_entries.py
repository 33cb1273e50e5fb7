"""Read entries of compile caches as data: a bounded part of them, nothing unpickled or loaded."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.facts import CacheEntry
from envdoctor.probes.elf import ElfError, read_elf
from envdoctor.probes.files import UnreadableError, list_folder, modified_at, read_head, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_ENTRIES = 128
"""Entries of one cache that are looked at; a cache of a busy machine has ten thousand."""

_MAX_PICKLES, _MAX_PICKLE_BYTES = 32, 1024**2
_MAX_FOLDERS, _MAX_LIBRARIES = 64, 64
_JSON_LIMIT = 256 * 1024
_ELF_HEADER = 64
_HASH_LENGTH = 51
_CODE_FOLDER = re.compile(r"[a-z0-9]{2}")


def read_triton_entries(folder: Path) -> tuple[int, list[CacheEntry]]:
    """Return how many entries a Triton cache has, and what some of them say.

    Source: triton/runtime/cache.py and compiler.py 3.6 and 3.9: one folder a key, in it one
    metadata file `NAME.json` beside `__grp__NAME.json` and the compiled stages.
    """
    keys = [name for name in list_folder(folder) if not name.startswith("tmp.")]
    found = (_triton_entry(folder / key) for key in _spread(keys, MAX_ENTRIES))
    return len(keys), [entry for entry in found if entry]


def _spread(names: Sequence[str], limit: int) -> Sequence[str]:
    """Return at most `limit` names, evenly spread: names are hashes, so this is a fair sample."""
    return names[:: -(-len(names) // limit)] if len(names) > limit else names


def _triton_entry(folder: Path) -> CacheEntry | None:
    names = list_folder(folder)
    metadata = next(
        (name for name in names if name.endswith(".json") and not name.startswith("__grp__")), None
    )
    if metadata is None:
        return None
    import json  # noqa: PLC0415  only where there is a cache

    path = folder / metadata
    modified = modified_at(path) or 0
    try:
        data = json.loads(read_text(path, limit=_JSON_LIMIT) or "")
        target = data.get("target") if isinstance(data, dict) else None
        if not isinstance(data, dict):
            return CacheEntry(path=str(path), modified=modified, error="no JSON object")
    except UnreadableError:
        return None
    # json raises RecursionError for deep nesting
    except (ValueError, RecursionError):
        return CacheEntry(path=str(path), modified=modified, error="no valid JSON: cut short?")
    if short := _short_binary(folder, names):
        return CacheEntry(path=str(short), modified=modified, error="its code ends early")
    arch = target.get("arch") if isinstance(target, dict) else None
    return CacheEntry(
        path=str(folder),
        modified=modified,
        triton=version if isinstance(version := data.get("triton_version"), str) else "",
        arch=arch if isinstance(arch, int) else None,
    )


def _short_binary(folder: Path, names: Sequence[str]) -> Path | None:
    """Return a compiled kernel that is shorter than the header it must begin with."""
    for name in names:
        if name.endswith((".cubin", ".hsaco")):
            try:
                if (folder / name).stat().st_size < _ELF_HEADER:
                    return folder / name
            except OSError:
                continue
    return None


def read_inductor_entries(folder: Path, machine: str) -> list[CacheEntry]:
    """Return the damaged entries among some of an Inductor cache's.

    Args:
        folder: The cache's root.
        machine: What compiled code must be for, as `uname -m` spells it.

    Source: torch/_inductor/codecache.py 2.9 to 2.15: a pickle's file name is the hash of its
    content; compiled code lies in folders of two characters.
    """
    damaged = [
        CacheEntry(
            path=str(path), modified=modified_at(path) or 0, error="its content is not its name's"
        )
        for path in _pickles(folder)
        if not _is_named_by_content(path)
    ]
    damaged += [
        CacheEntry(path=str(path), modified=modified_at(path) or 0, error=error)
        for path in _libraries(folder)
        if (error := _library_error(path, machine))
    ]
    return damaged


def _pickles(folder: Path) -> Iterator[Path]:
    graphs = [folder / "fxgraph" / name for name in list_folder(folder / "fxgraph")]
    keys = [graph / key for graph in graphs[:_MAX_FOLDERS] for key in list_folder(graph)]
    keys += [folder / "aotautograd" / key for key in list_folder(folder / "aotautograd")]
    chosen = _spread([str(key) for key in keys], _MAX_PICKLES)
    for key in chosen:
        for name in list_folder(key):
            # writers use hidden names until an entry is whole
            if not name.startswith("."):
                yield Path(key) / name


def _is_named_by_content(path: Path) -> bool:
    import base64  # noqa: PLC0415  only where there is a cache
    import hashlib  # noqa: PLC0415

    content = read_head(path, _MAX_PICKLE_BYTES + 1)
    if len(content) > _MAX_PICKLE_BYTES:
        return True
    digest = base64.b32encode(hashlib.sha256(content).digest())[:_HASH_LENGTH]
    return path.name == digest.decode("ascii").lower()


def _libraries(folder: Path) -> Iterator[Path]:
    names = [name for name in list_folder(folder) if _CODE_FOLDER.fullmatch(name)]
    found = (
        folder / name / entry
        for name in _spread(names, _MAX_FOLDERS)
        for entry in list_folder(folder / name)
        if entry.endswith(".so")
    )
    for _, path in zip(range(_MAX_LIBRARIES), found, strict=False):
        yield path


def _library_error(path: Path, machine: str) -> str:
    try:
        header = read_elf(os.fspath(path))
    except ElfError as error:
        return str(error)
    except OSError:
        return ""
    return f"code for {header.machine}" if header.machine != machine else ""
