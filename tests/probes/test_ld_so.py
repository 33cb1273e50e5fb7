"""The dynamic linker's configuration, its cache in both formats, and hostile ones."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import FactSet, HostFact, LoaderCacheFact, LoaderConfigFact
from envdoctor.probes.ld_so import (
    parse_cache,
    parse_config,
    read_loader_cache,
    read_loader_config,
)
from envdoctor.probes.subject import Subject

if TYPE_CHECKING:
    from pathlib import Path

X86_64, I386 = 0x0303, 0x0003
Entry = tuple[str, str, int, int]
"""SONAME, path, flags, hardware capabilities."""

NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


def new_cache(entries: list[Entry]) -> bytes:
    strings, table = b"", b""
    base = 48 + 24 * len(entries)
    for name, path, flags, hwcap in entries:
        key = base + len(strings)
        strings += name.encode() + b"\0"
        value = base + len(strings)
        strings += path.encode() + b"\0"
        table += struct.pack("<iIIIQ", flags, key, value, 0, hwcap)
    header = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(strings))
    return header.ljust(48, b"\0") + table + strings


def old_cache(entries: list[Entry]) -> bytes:
    strings, table = b"", b""
    for name, path, flags, _ in entries:
        key = len(strings)
        strings += name.encode() + b"\0"
        table += struct.pack("<iII", flags, key, len(strings))
        strings += path.encode() + b"\0"
    return b"ld.so-1.7.0\0" + struct.pack("<I", len(entries)) + table + strings


ENTRIES: list[Entry] = [
    ("libz.so.1", "/lib32/libz.so.1", I386, 0),
    ("libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1", X86_64, 0),
    ("libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1", X86_64, 0),
    ("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", X86_64, 0),
]
WANTED = {
    "libz.so.1": "/lib/x86_64-linux-gnu/libz.so.1",
    "libcuda.so.1": "/usr/local/cuda/compat/libcuda.so.1",
}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(new_cache(ENTRIES), id="new"),
        pytest.param(old_cache(ENTRIES), id="old"),
        pytest.param(old_cache(ENTRIES[:1]) + b"\0" * 3 + new_cache(ENTRIES), id="new-behind-old"),
    ],
)
def test_first_entry_of_this_machine_counts(data: bytes) -> None:
    assert parse_cache(data, "x86_64") == WANTED


def test_entry_for_special_hardware_is_left_out() -> None:
    special = ("libx.so.1", "/usr/lib/glibc-hwcaps/x86-64-v3/libx.so.1", X86_64, 1 << 62)
    plain = ("libx.so.1", "/usr/lib/libx.so.1", X86_64, 0)
    assert parse_cache(new_cache([special, plain]), "x86_64") == {"libx.so.1": plain[1]}


@given(st.binary(max_size=200), st.sampled_from([b"", b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"]))
def test_cache_of_any_bytes(content: bytes, magic: bytes) -> None:
    for machine in ("x86_64", "riscv64"):
        assert all(name and path for name, path in parse_cache(magic + content, machine).items())


@given(st.lists(st.tuples(NAME, NAME), max_size=6, unique_by=lambda pair: pair[0]))
def test_cache_that_ldconfig_writes_is_read_back(pairs: list[tuple[str, str]]) -> None:
    entries = [(name, path, X86_64, 0) for name, path in pairs]
    assert parse_cache(new_cache(entries), "x86_64") == dict(pairs)
    assert parse_cache(old_cache(entries), "x86_64") == dict(pairs)


@given(st.text(st.characters(exclude_categories=[]), max_size=200))
def test_config_of_any_text(text: str) -> None:
    for kind, value in parse_config(text):
        assert kind in {"folder", "include"}
        assert value
        assert kind == "include" or value.startswith("/")


def test_config_lines() -> None:
    text = "# comment\n/a/lib/ # why\n\n/b,/c:/d\t/e=libc6\ninclude x/*.conf y.conf\nhwcap 0 x\n"
    folders = [value for kind, value in parse_config(text) if kind == "folder"]
    assert folders == ["/a/lib", "/b", "/c", "/d", "/e"]
    patterns = [value for kind, value in parse_config(text) if kind == "include"]
    assert patterns == ["x/*.conf", "y.conf"]


def write(root: Path, path: str, content: str | bytes) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode())


def read(root: Path) -> tuple[LoaderConfigFact, LoaderCacheFact]:
    subject = Subject(prefix=root / "env", root=root)
    host = HostFact(machine="x86_64", kernel="", glibc=None, shm_bytes=None, disk_free_bytes=None)
    config = read_loader_config(subject, FactSet([]))
    return config, read_loader_cache(subject, FactSet([host, config]))


def test_folders_are_listed_with_the_files_that_name_them(tmp_path: Path) -> None:
    write(tmp_path, "etc/ld.so.conf", "include ld.so.conf.d/*.conf\n/opt/lib\n")
    write(tmp_path, "etc/ld.so.conf.d/b.conf", "/b\n")
    write(tmp_path, "etc/ld.so.conf.d/a.conf", "/a\n")
    write(tmp_path, "etc/ld.so.conf.d/c.txt", "/c\n")
    write(tmp_path, "etc/ld.so.preload", "/x.so /y.so\n/z.so")
    config, _ = read(tmp_path)
    assert config.folders == (
        ("/a", "/etc/ld.so.conf.d/a.conf"),
        ("/b", "/etc/ld.so.conf.d/b.conf"),
        ("/opt/lib", "/etc/ld.so.conf"),
    )
    assert config.preloaded == ("/x.so", "/y.so", "/z.so")


def test_includes_are_read_though_the_main_file_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, "etc/ld.so.conf.d/00-compat.conf", "/usr/local/cuda/compat\n")
    assert read(tmp_path)[0].folders == (
        ("/usr/local/cuda/compat", "/etc/ld.so.conf.d/00-compat.conf"),
    )


def test_file_that_includes_itself_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, "etc/ld.so.conf", "include /etc/*.conf\n/a\n")
    write(tmp_path, "etc/x.conf", "include *.conf\n/b\n")
    assert sorted(folder for folder, _ in read(tmp_path)[0].folders) == ["/a", "/b"]


def test_cache_is_read_where_there_is_one(tmp_path: Path) -> None:
    write(tmp_path, "etc/ld.so.cache", new_cache(ENTRIES))
    write(tmp_path, "usr/lib/libother.so.1", b"")
    assert dict(read(tmp_path)[1].entries) == WANTED


def test_without_cache_folders_are_listed_as_ldconfig_would(tmp_path: Path) -> None:
    write(tmp_path, "etc/ld.so.conf", "/opt/lib\n")
    for path in ("opt/lib/liba.so.1", "usr/lib64/liba.so.1", "usr/lib64/libb.so", "usr/lib64/x"):
        write(tmp_path, path, b"")
    assert dict(read(tmp_path)[1].entries) == {
        "liba.so.1": "/opt/lib/liba.so.1",
        "libb.so": "/usr/lib64/libb.so",
    }
