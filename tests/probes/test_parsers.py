"""Property tests: whatever a file holds, a parser answers and does not crash."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from envdoctor.probes.distributions import normalised, parse_metadata, read_distribution
from envdoctor.probes.elf import ElfError, read_elf
from envdoctor.probes.record import parse_rows
from envdoctor.probes.torch_build import parse_version_file, read_arch_list
from tests.environments import elf

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=400)
PATH = st.text(
    st.characters(
        exclude_characters="\r\n\0\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", exclude_categories=["Cs"]
    ),
    min_size=1,
    max_size=40,
).filter(lambda path: not path.endswith(".pyc"))


@given(ANY_TEXT)
def test_record_of_any_text(text: str) -> None:
    for path, _, size in parse_rows(text):
        assert path
        assert "\0" not in path
        assert size is None or size >= 0


@given(st.lists(st.tuples(PATH, st.integers(0, 10**12)), max_size=8))
def test_record_that_an_installer_writes_is_read_back(rows: list[tuple[str, int]]) -> None:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(
        (path, "sha256=x", size) for path, size in rows
    )
    assert [(path, size) for path, _, size in parse_rows(stream.getvalue())] == rows


@given(ANY_TEXT)
def test_metadata_of_any_text(text: str) -> None:
    headers = parse_metadata(text)
    assert all(key == key.strip().lower() for key in headers)


@given(st.binary(max_size=400))
def test_distribution_of_any_bytes(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder) / "Some_Thing-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_bytes(content)
        dist = read_distribution(str(info))
    assert dist.name == normalised(dist.name)


@given(ANY_TEXT)
def test_version_file_of_any_text(text: str) -> None:
    assert all(isinstance(value, str) for value in parse_version_file(text).values())


@given(st.text(st.characters(categories=["L", "N"]), max_size=20))
def test_version_file_as_torch_writes_it(version: str) -> None:
    text = f"__version__ = {version!r}\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
    assert parse_version_file(text) == {"__version__": version, "cuda": "12.8"}


@given(st.binary(max_size=300))
def test_elf_of_any_bytes(content: bytes) -> None:
    _read_or_refuse(b"\x7fELF\x02\x01" + content)
    _read_or_refuse(content)


@given(st.data())
def test_elf_with_one_changed_byte_or_cut_short(data: st.DataObject) -> None:
    content = bytearray(elf("libx.so.1", arch="sm_80 sm_90"))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(content)))
    _read_or_refuse(bytes(content[:end]))


def _read_or_refuse(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            header = read_elf(file.name)
        except ElfError as error:
            assert str(error)
        else:
            assert isinstance(header.soname, str)
        assert all(name.startswith(("sm_", "compute_")) for name in read_arch_list(Path(file.name)))


def test_elf_that_is_whole() -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(elf("libx.so.1", arch="sm_80 sm_90a compute_90"))
        file.flush()
        header = read_elf(file.name)
        arch = read_arch_list(Path(file.name))
    assert (header.machine, header.soname) == ("x86_64", "libx.so.1")
    assert arch == ("sm_80", "sm_90a", "compute_90")
