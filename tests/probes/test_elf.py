"""What is read of ELF objects, and that no bytes whatever crash or stall a reader."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.probes.elf import ElfError, ElfHeader, open_elf, read_elf
from envdoctor.probes.elf_symbols import ElfVersions, defines, functions, read_versions, undefined
from tests.elf_builder import Elf, build

if TYPE_CHECKING:
    from pathlib import Path

RICH = Elf(
    soname="libx.so.1",
    needed=("libc.so.6", "libnvJitLink.so.12"),
    rpath="$ORIGIN:" + "/a/long/folder" * 60,
    runpath="$ORIGIN/../lib",
    defines=("open_it", "close_it", "_ZN3c105ErrorC2Ev"),
    undefined=("__nvJitLinkComplete_12_8", "malloc"),
    weak=("may_be_there",),
    versions_needed={"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.28"), "libm.so.6": ("GLIBC_2.29",)},
    versions_defined=("X_1.0", "X_1.1"),
)
NAME = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12)
NAMES = st.lists(NAME, max_size=8, unique=True).map(tuple)


def write(content: bytes, folder: Path, name: str = "libx.so.1") -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def test_dynamic_section_is_read_in_full(tmp_path: Path) -> None:
    path = write(build(RICH), tmp_path)
    status = os.stat(path)  # noqa: PTH116
    assert read_elf(path) == ElfHeader(
        machine="x86_64",
        soname=RICH.soname,
        needed=RICH.needed,
        rpath=str(RICH.rpath),
        runpath=RICH.runpath,
        identity=(status.st_dev, status.st_ino),
    )


def test_empty_runpath_is_not_none(tmp_path: Path) -> None:
    """Its presence alone switches RPATH off."""
    assert read_elf(write(build(Elf(runpath="")), tmp_path)).runpath == ""
    assert read_elf(write(build(Elf()), tmp_path)).runpath is None


@pytest.mark.parametrize("has_gnu_hash", [True, False])
def test_symbols_are_told_apart(tmp_path: Path, has_gnu_hash: bool) -> None:
    names = ("a", "b", "c" * 40)
    spec = Elf(defines=names, undefined=("u",), weak=("w",), has_gnu_hash=has_gnu_hash)
    with open_elf(write(build(spec), tmp_path)) as file:
        assert undefined(file) == ["u"]
        assert functions(file) == set(names)
        assert defines(file, {*names, "u", "w", "no"}) == set(names)


def test_undefined_symbols_of_an_object_that_defines_nothing(tmp_path: Path) -> None:
    with open_elf(write(build(Elf(undefined=("u", "v"))), tmp_path)) as file:
        assert undefined(file) == ["u", "v"]
        assert functions(file) == set()


def test_versions_by_provider_without_the_base_definition(tmp_path: Path) -> None:
    with open_elf(write(build(RICH), tmp_path)) as file:
        assert read_versions(file) == ElfVersions(
            needed=RICH.versions_needed, defined=frozenset(RICH.versions_defined)
        )


def test_program_is_taken_only_where_one_is_wanted(tmp_path: Path) -> None:
    path = write(build(Elf(kind=2, needed=("libc.so.6",))), tmp_path)
    with pytest.raises(ElfError, match="ELF type 2"):
        read_elf(path)
    with open_elf(path, executable=True) as file:
        assert file.header().needed == ("libc.so.6",)


@given(NAMES, NAMES, st.booleans())
def test_symbols_that_are_written_are_read_back(
    defined: tuple[str, ...], wanted: tuple[str, ...], has_gnu_hash: bool
) -> None:
    spec = Elf(defines=defined, undefined=wanted, has_gnu_hash=has_gnu_hash)
    with tempfile.NamedTemporaryFile() as stream:
        stream.write(build(spec))
        stream.flush()
        with open_elf(stream.name) as file:
            assert undefined(file) == list(wanted)
            assert functions(file) == set(defined)
            assert defines(file, {*defined, *wanted, "absent"}) == set(defined)


@given(st.data())
def test_damaged_object_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(build(RICH))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 8))
        raw = data.draw(st.sampled_from([b"\0", b"\xff", b"\xff" * 8, b"\0" * 8, b"\x01\x00\x10"]))
        content[at : at + len(raw)] = raw
    read_everything(bytes(content[: data.draw(st.integers(0, len(content)))]))
    read_everything(bytes(content))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    read_everything(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + content)


def read_everything(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as stream:
        stream.write(content)
        stream.flush()
        try:
            with open_elf(stream.name) as file:
                file.header()
                read_versions(file)
                defines(file, ["open_it", "absent"])
                assert all(isinstance(name, str) for name in [*undefined(file), *functions(file)])
        except ElfError as error:
            assert str(error)
