"""Small ELF shared objects with search paths, versions and symbols, made without a compiler."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from envdoctor.probes.elf_symbols import gnu_hash

_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 4, 5, 6, 10, 14, 15, 29
_GNU_HASH, _VERDEF, _VERNEED = 0x6FFFFEF5, 0x6FFFFFFC, 0x6FFFFFFE
_HEADERS = 64 + 2 * 56


@dataclass(frozen=True, kw_only=True)
class Elf:
    """What a shared object is to say of itself.

    Args:
        soname: DT_SONAME; empty for none.
        needed: DT_NEEDED in order.
        rpath: DT_RPATH; None for none.
        runpath: DT_RUNPATH; None for none.
        defines: Functions that it defines.
        undefined: Functions that others have to define.
        weak: Functions that others may define.
        versions_needed: Version nodes by the SONAME that must define them.
        versions_defined: Version nodes that it defines.
        has_gnu_hash: False to give it the older DT_HASH alone.
        machine: ELF machine.
        kind: ELF type: 3 is a shared object, 2 a program.
    """

    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    defines: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    versions_needed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    versions_defined: tuple[str, ...] = ()
    has_gnu_hash: bool = True
    machine: int = 62
    kind: int = 3


class _Strings:
    def __init__(self) -> None:
        self.data = b"\0"

    def __call__(self, text: str) -> int:
        raw = text.encode() + b"\0"
        at = self.data.find(b"\0" + raw)
        if at < 0:
            at = len(self.data) - 1
            self.data += raw
        return at + 1


def build(spec: Elf) -> bytes:
    """Return the file: headers, one segment over everything, a dynamic section."""
    text = _Strings()
    buckets = max(1, len(spec.defines) // 2)
    defined = sorted(spec.defines, key=lambda name: gnu_hash(name.encode()) % buckets)
    symbols = bytes(24)
    symbols += b"".join(_symbol(text(name), 1, 0) for name in spec.undefined)
    symbols += b"".join(_symbol(text(name), 2, 0) for name in spec.weak)
    symbols += b"".join(_symbol(text(name), 1, 1) for name in defined)
    first = 1 + len(spec.undefined) + len(spec.weak)
    parts: dict[int, bytes] = {_SYMTAB: symbols}
    if spec.has_gnu_hash:
        parts[_GNU_HASH] = _gnu_table(defined, first, buckets)
    else:
        parts[_HASH] = struct.pack("<II", 1, len(symbols) // 24)
    if spec.versions_needed:
        parts[_VERNEED] = _verneed(spec.versions_needed, text)
    if spec.versions_defined:
        parts[_VERDEF] = _verdef(spec.versions_defined, text)
    names = [(_NEEDED, name) for name in spec.needed]
    names += [(_SONAME, spec.soname)] if spec.soname else []
    names += [(_RPATH, spec.rpath)] if spec.rpath is not None else []
    names += [(_RUNPATH, spec.runpath)] if spec.runpath is not None else []
    entries = [(tag, text(name)) for tag, name in names]
    return _assemble(spec, parts, entries, text.data)


def _assemble(
    spec: Elf, parts: dict[int, bytes], entries: list[tuple[int, int]], strings: bytes
) -> bytes:
    body = b""
    for tag, part in (*parts.items(), (_STRTAB, strings)):
        entries.append((tag, _HEADERS + len(body)))
        body += part + bytes(-len(part) % 8)
    entries += [(_STRSZ, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in entries)
    dynamic_at = _HEADERS + len(body)
    size = dynamic_at + len(dynamic)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQ", spec.kind, spec.machine, 1, 0, 64, 0)
    header += struct.pack("<IHHHHHH", 0, 64, 56, 2, 64, 0, 0)
    programs = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    place = (dynamic_at, dynamic_at, 0, len(dynamic), len(dynamic))
    programs += struct.pack("<IIQQQQQQ", 2, 6, *place, 8)
    return header + programs + body + dynamic


def _symbol(name: int, binding: int, section: int) -> bytes:
    return struct.pack("<IBBHQQ", name, binding << 4 | 2, 0, section, 0, 0)


def _gnu_table(names: list[str], first: int, num_buckets: int) -> bytes:
    hashes = [gnu_hash(name.encode()) for name in names]
    bloom = 0
    for code in hashes:
        bloom |= 1 << code % 64 | 1 << (code >> 6) % 64
    heads = [0] * num_buckets
    chain = []
    for at, code in enumerate(hashes):
        bucket = code % num_buckets
        heads[bucket] = heads[bucket] or first + at
        is_last = at + 1 == len(hashes) or hashes[at + 1] % num_buckets != bucket
        chain.append(code & ~1 | is_last)
    table = struct.pack("<IIIIQ", num_buckets, first if names else 1, 1, 6, bloom)
    return table + struct.pack(f"<{num_buckets}I{len(chain)}I", *heads, *chain)


def _verneed(needed: dict[str, tuple[str, ...]], text: _Strings) -> bytes:
    out = b""
    for at, (provider, nodes) in enumerate(needed.items()):
        size = 16 + 16 * len(nodes)
        step = 0 if at + 1 == len(needed) else size
        out += struct.pack("<HHIII", 1, len(nodes), text(provider), 16, step)
        for index, node in enumerate(nodes):
            link = 0 if index + 1 == len(nodes) else 16
            out += struct.pack("<IHHII", 0, 0, index + 2, text(node), link)
    return out


def _verdef(nodes: tuple[str, ...], text: _Strings) -> bytes:
    out = b""
    for index, node in enumerate(("base", *nodes)):
        step = 0 if index == len(nodes) else 28
        out += struct.pack("<HHHHIII", 1, int(index == 0), index + 1, 1, 0, 20, step)
        out += struct.pack("<II", text(node), 0)
    return out
