"""Read where the dynamic linker is told to look: ld.so.cache and ld.so.conf."""

from __future__ import annotations

import struct
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from envdoctor.facts import FactSet, HostFact, LoaderCacheFact, LoaderConfigFact
from envdoctor.probes.files import UnreadableError, list_folder, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.subject import Subject

CACHE = "/etc/ld.so.cache"
CONFIG = "/etc/ld.so.conf"
_CACHE_LIMIT = 16 * 1024 * 1024
_CONFIG_LIMIT = 1024 * 1024
_MAX_FILES = 256
_OLD_MAGIC, _NEW_MAGIC = b"ld.so-1.7.0", b"glibc-ld.so.cache1.1"
_OLD_HEADER, _OLD_ENTRY = 16, struct.Struct("<iII")
_NEW_HEADER, _NEW_ENTRY = 48, struct.Struct("<iIIIQ")
_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03, "ppc64le": 0x0503}
"""What marks a library of this machine in the cache; 32-bit ones stand beside it."""

_TRIPLETS = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}


def read_loader_config(subject: Subject, facts: FactSet) -> LoaderConfigFact:
    """Read the folders that ld.so.conf names, and the files that are preloaded everywhere.

    Without the main file its usual include is taken: it may be left out of an image's layers.
    """
    del facts
    main = list(_config_lines(subject, CONFIG, set()))
    if not main:
        main = list(_included(subject, "/etc/ld.so.conf.d/*.conf", set()))
    preload = _text(subject, "/etc/ld.so.preload")
    return LoaderConfigFact(
        folders=tuple(dict.fromkeys(main)), preloaded=tuple(preload.replace(":", " ").split())
    )


def read_loader_cache(subject: Subject, facts: FactSet) -> LoaderCacheFact:
    """Read ld.so.cache; without one, what ldconfig would put there."""
    machine = facts.need(HostFact).machine
    text = _text(subject, CACHE, limit=_CACHE_LIMIT)
    if text:
        data = text.encode("utf-8", "surrogateescape")
        return LoaderCacheFact(entries=tuple(parse_cache(data, machine).items()))
    folders = [folder for folder, _ in facts.need(LoaderConfigFact).folders]
    found: dict[str, str] = {}
    for folder in dict.fromkeys([*folders, *default_folders(machine)]):
        for name in list_folder(subject.locate(folder)):
            if name.startswith("lib") and ".so" in name:
                found.setdefault(name, f"{folder}/{name}")
    return LoaderCacheFact(entries=tuple(found.items()))


def default_folders(machine: str) -> tuple[str, ...]:
    """Return the folders that are searched last, on Debian's layout and on Fedora's."""
    triplet = _TRIPLETS.get(machine)
    debian = (f"/lib/{triplet}", f"/usr/lib/{triplet}") if triplet else ()
    return (*debian, "/lib64", "/usr/lib64", "/lib", "/usr/lib")


def parse_cache(data: bytes, machine: str) -> dict[str, str]:
    """Return the path of each SONAME in a cache, old format or new; empty if it is neither.

    Where a name stands several times the first one of this machine counts. Entries for special
    hardware (`glibc-hwcaps`) are left out: a plain one stands beside each.

    Source: glibc sysdeps/generic/dl-cache.h, versions 2.17 to 2.40.
    """
    start = data.find(_NEW_MAGIC)  # the old format may come first and the new one behind it
    if start >= 0:
        part = data[start:]
        return _parse_entries(part, _NEW_HEADER, _NEW_ENTRY, len(_NEW_MAGIC), machine)
    if data.startswith(_OLD_MAGIC):
        return _parse_entries(data, _OLD_HEADER, _OLD_ENTRY, 12, machine)
    return {}


def _parse_entries(
    data: bytes, header: int, entry: struct.Struct, count_at: int, machine: str
) -> dict[str, str]:
    count = int.from_bytes(data[count_at : count_at + 4], "little")
    end = min(header + count * entry.size, len(data))
    table = data[header : header + max(0, end - header) // entry.size * entry.size]
    # in the old format strings are counted from the end of the table, in the new from the start
    base = 0 if entry is _NEW_ENTRY else header + count * entry.size
    wanted = _FLAGS.get(machine)
    found: dict[str, str] = {}
    for flags, key, value, *rest in entry.iter_unpack(table):
        if (wanted is None or flags == wanted) and not (rest and rest[1]):
            name = _string(data, base + key)
            if name and name not in found:
                found[name] = _string(data, base + value)
    return {name: path for name, path in found.items() if path}


def _string(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset, offset + 4096)
    return data[offset:end].decode("utf-8", "replace") if end >= 0 else ""


def parse_config(text: str) -> Iterator[tuple[str, str]]:
    """Yield what each line of an ld.so.conf says: (`folder`, path) or (`include`, pattern)."""
    for line in text.splitlines():
        words = line.partition("#")[0].replace(",", " ").replace(":", " ").split()
        if words[:1] == ["include"]:
            yield from (("include", pattern) for pattern in words[1:])
        elif words[:1] != ["hwcap"]:
            for word in words:
                folder = word.partition("=")[0]  # `folder=TYPE` is an old way to name the ABI
                if folder.startswith("/") and "\0" not in folder:
                    yield "folder", folder.rstrip("/") or "/"


def _config_lines(subject: Subject, path: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Yield folders and the files that name them; an include is followed once for each file."""
    if path in seen or len(seen) > _MAX_FILES:
        return
    seen.add(path)
    for kind, value in parse_config(_text(subject, path)):
        if kind == "folder":
            yield value, path
        else:
            where = value if value.startswith("/") else f"{path.rpartition('/')[0]}/{value}"
            yield from _included(subject, where, seen)


def _included(subject: Subject, pattern: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Yield what the files that match a pattern say, in their order by name."""
    folder, _, name = pattern.rpartition("/")
    for entry in list_folder(subject.locate(folder)):
        if fnmatch(entry, name):
            yield from _config_lines(subject, f"{folder}/{entry}", seen)


def _text(subject: Subject, path: str, *, limit: int = _CONFIG_LIMIT) -> str:
    try:
        return read_text(subject.locate(path), limit=limit) or ""
    except UnreadableError:
        return ""
