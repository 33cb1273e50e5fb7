"""Look up symbols and symbol versions of an ELF object without reading its whole symbol table."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.probes.elf import DT_STRTAB

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from envdoctor.probes.elf import ElfFile

_DT_HASH, _DT_SYMTAB, _DT_GNU_HASH = 4, 6, 0x6FFFFEF5
_DT_VERDEF, _DT_VERNEED = 0x6FFFFFFC, 0x6FFFFFFE
_VER_FLG_BASE, _VER_FLG_WEAK = 1, 2
_STB_GLOBAL, _STT_FUNC = 1, 2
_MAX_VERSIONS = 32 * 1024
_MAX_CHAIN = 1024
_CHAIN_READ = 64
_MAX_PROVIDERS = 256
_MAX_SYMBOLS = 50_000
_MAX_TABLE = 8 * 1024 * 1024
_GNU_HEADER = 16
_WORD_BITS = 64
_SYMBOL = struct.Struct("<IBBHQQ")
_VERNEED, _VERNAUX = struct.Struct("<HHIII"), struct.Struct("<IHHII")
_VERDEF, _VERDAUX = struct.Struct("<HHHHIII"), struct.Struct("<II")


class ElfVersions(NamedTuple):
    """Version nodes, such as `GLIBCXX_3.4.30`.

    Args:
        needed: By the SONAME that must define them; weak ones are left out.
        defined: What the object itself defines; empty if it has no versions.
    """

    needed: dict[str, tuple[str, ...]]
    defined: frozenset[str]


NO_VERSIONS = ElfVersions(needed={}, defined=frozenset())


class _GnuHash(NamedTuple):
    """A DT_GNU_HASH table: its header, Bloom filter and buckets, and where its chains are."""

    num_buckets: int
    first_symbol: int
    bloom_words: int
    bloom_shift: int
    bloom: bytes
    buckets: bytes
    chains: int


def read_versions(file: ElfFile) -> ElfVersions:
    """Read which version nodes an object needs of others and defines itself.

    Source: Linux Standard Base, chapter "Symbol Versioning".
    """
    needed: dict[str, tuple[str, ...]] = {}
    for provider, nodes in _verneed(file):
        needed[provider] = (*needed.get(provider, ()), *nodes)
    return ElfVersions(needed=needed, defined=frozenset(_verdef(file)))


def defines(file: ElfFile, names: Collection[str]) -> set[str]:
    """Return which of the names an object defines for others to bind to."""
    table = _gnu_hash(file)
    if table is None:
        return set(names) & set(_names(file, _count(file), _is_defined))
    return {name for name in names if _is_in(file, table, name.encode("utf-8", "replace"))}


def undefined(file: ElfFile) -> list[str]:
    """Return the names that an object needs others to define; weak ones are left out."""
    table = _gnu_hash(file)
    # The hash table covers what is defined; all that comes before it is not. A table of an object
    # that defines nothing says 1.
    count = table.first_symbol if table else 0
    return list(_names(file, count if count > 1 else _count(file), _is_wanted))


def functions(file: ElfFile) -> set[str]:
    """Return the names of the functions that an object defines for others."""
    return set(_names(file, _num_symbols(file), _is_function))


def _is_wanted(info: int, section: int) -> bool:
    return section == 0 and info >> 4 == _STB_GLOBAL


def _is_defined(info: int, section: int) -> bool:
    return section != 0 and info >> 4 != 0


def _is_function(info: int, section: int) -> bool:
    return _is_defined(info, section) and info & 15 == _STT_FUNC


def _names(file: ElfFile, count: int, wanted: Callable[[int, int], bool]) -> Iterator[str]:
    address = file.value(_DT_SYMTAB)
    table = file.at(address, min(count, _MAX_SYMBOLS) * _SYMBOL.size) if address else b""
    whole = len(table) // _SYMBOL.size * _SYMBOL.size
    offsets = [
        name
        for name, info, _, section, _, _ in _SYMBOL.iter_unpack(table[:whole])
        if name and wanted(info, section)
    ]
    return (name for name in file.strings(offsets).values() if name)


def _count(file: ElfFile) -> int:
    """Return the number of symbols by DT_HASH, else by where linkers put the strings: behind."""
    if file.value(_DT_HASH):
        return int.from_bytes(file.at(file.value(_DT_HASH), 8)[4:8], "little")
    return max(0, file.value(DT_STRTAB) - file.value(_DT_SYMTAB)) // _SYMBOL.size


def _num_symbols(file: ElfFile) -> int:
    """Return the number of symbols, which the GNU table tells only by its last chain."""
    table = _gnu_hash(file)
    if table is None:
        return _count(file)
    last: int = max(head for (head,) in struct.iter_unpack("<I", table.buckets))
    if last < table.first_symbol:
        return table.first_symbol
    return last + sum(1 for _ in _chain_of(file, table, last))


def _gnu_hash(file: ElfFile) -> _GnuHash | None:
    address = file.value(_DT_GNU_HASH)
    header = file.at(address, _GNU_HEADER) if address else b""
    if len(header) < _GNU_HEADER:
        return None
    num_buckets, first, words, shift = struct.unpack("<IIII", header)
    bloom, buckets = 8 * words, 4 * num_buckets
    if not bloom or not buckets or shift >= _WORD_BITS or bloom + buckets > _MAX_TABLE:
        return None
    start = address + _GNU_HEADER
    data = file.at(start, bloom + buckets)
    if len(data) < bloom + buckets:
        return None
    chains = start + bloom + buckets
    return _GnuHash(num_buckets, first, words, shift, data[:bloom], data[bloom:], chains)


def _is_in(file: ElfFile, table: _GnuHash, name: bytes) -> bool:
    """Look a name up as the loader does: Bloom filter, bucket, chain.

    Source: System V ABI generic supplement, "DT_GNU_HASH"; glibc elf/dl-lookup.c.
    """
    code = gnu_hash(name)
    at = code // _WORD_BITS % table.bloom_words * 8
    word = int.from_bytes(table.bloom[at : at + 8], "little")
    if not (word >> code % _WORD_BITS & 1 and word >> (code >> table.bloom_shift) % _WORD_BITS & 1):
        return False
    at = code % table.num_buckets * 4
    index = int.from_bytes(table.buckets[at : at + 4], "little")
    if index < table.first_symbol:
        return False
    for symbol, value in enumerate(_chain_of(file, table, index), index):
        if value | 1 == code | 1 and _is_symbol(file, symbol, name):
            return True
    return False


def _chain_of(file: ElfFile, table: _GnuHash, index: int) -> Iterator[int]:
    """Yield the hashes of the symbols that share a bucket, from the first on."""
    address = table.chains + 4 * (index - table.first_symbol)
    for start in range(0, 4 * _MAX_CHAIN, _CHAIN_READ):
        part = file.at(address + start, _CHAIN_READ)
        for (value,) in struct.iter_unpack("<I", part[: len(part) // 4 * 4]):
            yield value
            if value & 1:  # the last of its bucket
                return


def _is_symbol(file: ElfFile, index: int, name: bytes) -> bool:
    entry = file.at(file.value(_DT_SYMTAB) + index * _SYMBOL.size, _SYMBOL.size)
    if len(entry) < _SYMBOL.size:
        return False
    offset, info, _, section, _, _ = _SYMBOL.unpack(entry)
    found = file.strings([offset])[offset]
    return _is_defined(info, section) and found.encode("utf-8", "replace") == name


def gnu_hash(name: bytes) -> int:
    """Return the hash of a name as DT_GNU_HASH tables use it."""
    code = 5381
    for byte in name:
        code = code * 33 + byte & 0xFFFFFFFF
    return code


def _verneed(file: ElfFile) -> Iterator[tuple[str, list[str]]]:
    address = file.value(_DT_VERNEED)
    data = file.at(address, _MAX_VERSIONS) if address else b""
    found: list[tuple[int, list[int]]] = []
    for at, (_, count, provider, auxiliary, _) in _records(data, 0, _VERNEED):
        nodes = [
            name
            for _, (_, flags, _, name, _) in _records(data, at + auxiliary, _VERNAUX, count)
            if not flags & _VER_FLG_WEAK
        ]
        found.append((provider, nodes))
    text = file.strings({name for provider, nodes in found for name in (provider, *nodes)})
    for provider, nodes in found:
        yield text[provider], [text[name] for name in nodes]


def _verdef(file: ElfFile) -> Iterator[str]:
    address = file.value(_DT_VERDEF)
    data = file.at(address, _MAX_VERSIONS) if address else b""
    found: list[int] = []
    for at, (_, flags, _, _, _, auxiliary, _) in _records(data, 0, _VERDEF):
        if not flags & _VER_FLG_BASE:  # the base names the object itself
            found += [name for _, (name, _) in _records(data, at + auxiliary, _VERDAUX, 1)]
    return iter(file.strings(set(found)).values())


def _records(
    data: bytes, at: int, record: struct.Struct, limit: int = _MAX_PROVIDERS
) -> list[tuple[int, tuple[int, ...]]]:
    """Return records that each say, in their last number, how far the next one is; 0 ends it.

    Records that overlap are damage; the limit keeps them from taking long.
    """
    found = []
    end = len(data) - record.size
    for _ in range(min(limit, _MAX_PROVIDERS)):
        if at > end:
            break
        values = record.unpack_from(data, at)
        found.append((at, values))
        if not values[-1]:
            break
        at += values[-1]
    return found
