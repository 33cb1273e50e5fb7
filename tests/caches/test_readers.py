"""Property tests: whatever a cache holds, a reader answers and does not crash."""

from __future__ import annotations

import hashlib
import json
import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envdoctor.caches.entries import CachedFile, group
from envdoctor.probes.build_keys import (
    can_import,
    compact,
    entry_prefix,
    is_known,
    module_suffixes,
    torch_key,
)
from envdoctor.probes.cache_content import (
    Saying,
    autotune_saying,
    cubin_saying,
    library_saying,
    metadata_saying,
    pickle_saying,
    read_marks,
    source_saying,
)
from envdoctor.probes.cache_files import list_files
from envdoctor.probes.cache_readings import Allowance, read_entry
from tests.caches.samples import TRITON_ENTRIES, triton_key
from tests.environments import elf

CONTENT = st.binary(max_size=600)
NAMES = st.sampled_from(
    ["child_paths", "target", "arch", "triton_version", "system", "device", "x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
SEGMENT = st.sampled_from(
    ["fxgraph", "aotautograd", "triton", "0", "locks", "cache", "ab", ".1.2.tmp", "tmp.pid_3_x",
     "c" + "a" * 51 + ".py", "f" + "b" * 51, "A" * 52, "x.lock", "\udcff", "é", "..."]
)  # fmt: skip
PATHS = st.lists(SEGMENT, min_size=1, max_size=5).map("/".join)


@given(CONTENT)
def test_any_pickle(content: bytes) -> None:
    said = pickle_saying(content, name="x")
    assert said.fault or compact(content) == "x"
    assert pickle_saying(content, name=compact(content)) == pickle_saying(content)


@given(CONTENT)
def test_nothing_is_unpickled(rest: bytes) -> None:
    """What would run code if it were loaded is read as any other bytes."""
    evil = b"\x80\x04cos\nsystem\n(S'touch /nowhere/owned'\ntR" + rest + b"."
    assert pickle_saying(evil, name=compact(evil)) == Saying()


@given(st.binary(min_size=32, max_size=32), st.sampled_from(["3.11", "3.13", "3.14"]))
def test_marks_are_found_where_torch_puts_them(torch: bytes, python: str) -> None:
    mark = entry_prefix(torch, python=python)
    system = hashlib.sha256(torch).hexdigest()
    text = f"[{mark}] torch_version: \n[{mark}] system_info[hash]: {system}"
    device = f"[{mark}] system_info[device]: {{'name': 'NVIDIA H200'}}"
    said = pickle_saying(pickle.dumps([text, device], protocol=4))
    assert said == Saying(torch=mark, system=system, device="NVIDIA H200")


@given(CONTENT)
def test_any_cubin(content: bytes) -> None:
    assert 0 <= cubin_saying(content).arch < 256


def test_real_cubins() -> None:
    for arch in (80, 90, 100):
        content = (TRITON_ENTRIES / triton_key(arch) / "scale.cubin").read_bytes()
        assert cubin_saying(content) == Saying(arch=arch)
        assert cubin_saying(content[:-100]).fault == "its code ends early"


@given(st.integers(0, 8351), st.integers(1, 255))
def test_a_changed_byte_of_a_cubin(at: int, flip: int) -> None:
    content = bytearray((TRITON_ENTRIES / triton_key(100) / "scale.cubin").read_bytes())
    content[at % len(content)] ^= flip
    cubin_saying(bytes(content))


@given(JSON)
def test_any_metadata(data: object) -> None:
    content = json.dumps(data).encode()
    said = metadata_saying(content)
    assert isinstance(said.triton, str)
    assert isinstance(said.arch, int)
    assert all(isinstance(path, str) for path in (said.children or {}).values())
    assert isinstance(autotune_saying(content).device, str)


@given(CONTENT)
def test_any_bytes_as_metadata_and_source(content: bytes) -> None:
    metadata_saying(content)
    autotune_saying(content)
    source_saying(content, is_python=True)
    source_saying(content, is_python=False)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_changed_byte_of_a_library(at: int, value: int) -> None:
    content = bytearray(elf("kernel.so"))
    content[at % len(content)] = value
    said = library(bytes(content), name="kernel.cpython-312-x86_64-linux-gnu.so")
    assert said.fault or (said.machine and said.python == "3.12")


@given(st.integers(0, len(elf("kernel.so")) - 1))
def test_a_library_that_is_cut_short_anywhere(length: int) -> None:
    assert library(elf("kernel.so")[:length]).fault


def library(content: bytes, *, name: str = "kernel.so") -> Saying:
    def read(offset: int, length: int) -> bytes:
        return content[offset : offset + length]

    return library_saying(read, len(content), name=name)


@given(st.integers(0, 10**5), st.integers(0, 10**5), st.sampled_from(["", "NVIDIA H200"]))
def test_the_beginning_of_a_pickle_says_what_all_of_it_says(
    before: int, after: int, device: str
) -> None:
    inside = f"system_info[device]: {{'name': '{device}'}}"
    lines = ["torch_version: ", *([inside] if device else []), f"system_info[hash]: {'0' * 64}"]
    told = [f"[{'a' * 51}] {line}" for line in lines]
    content = pickle.dumps(["x" * before, *told, "y" * after], protocol=4)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        for limit in (len(content), 2 * len(content)):
            found, num_read = read_marks(file.fileno(), len(content), limit=limit)
            assert pickle_saying(found) == pickle_saying(content)
            assert pickle_saying(found).device == device
            # Blocks grow as large as what was read before, so at most twice what was needed.
            assert num_read <= 2 * (before + 1_000) + 16 * 1024
        few = read_marks(file.fileno(), len(content), limit=0)
    assert few == (content[:1] + content[-1:], 0)


@given(between=st.integers(0, 10**5), is_swapped=st.booleans())
def test_marks_in_another_order_are_found_as_well(*, between: int, is_swapped: bool) -> None:
    told = [f"[{'a' * 51}] torch_version: ", f"[{'a' * 51}] system_info[hash]: {'0' * 64}"]
    told = told[::-1] if is_swapped else told
    content = pickle.dumps([told[0], "x" * between, told[1]], protocol=4)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        found, _ = read_marks(file.fileno(), len(content), limit=10**6)
    assert pickle_saying(found) == pickle_saying(content)
    assert pickle_saying(found).torch == "a" * 51


@given(st.sets(PATHS, max_size=8), st.sampled_from(["inductor", "triton", "flashinfer", "cuda"]))
def test_any_names_are_sorted_into_entries(paths: set[str], kind: str) -> None:
    files = [CachedFile(path, 1, 1, 0o100644, 0) for path in paths]
    entries = group(kind, files)  # type: ignore[arg-type]
    assert sorted(file.path for entry in entries for file in entry.files) == sorted(paths)
    assert len({(entry.path, entry.kind) for entry in entries}) == len(entries)
    assert all(0 <= entry.pid < 10**9 for entry in entries)


@settings(max_examples=40)
@given(st.dictionaries(PATHS.map(lambda path: path.replace("...", "x")), CONTENT, max_size=5))
def test_any_tree_is_read(tree: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in tree.items():
            path = Path(folder, name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError:  # a file where a folder should be
                continue
        for entry in group("inductor", list_files(folder).files):
            for deep in (False, True):
                read_entry(folder, entry, deep=deep, allowance=Allowance(1000))


def test_a_key_covers_every_module_once(tmp_path: Path) -> None:
    """By hand: version, then name and bytes of each module in the order of their names."""
    torch = tmp_path / "torch"
    for name, text in {
        "__init__.py": "top", "b.py": "B", "a/__init__.py": "A", "a/z.py": "AZ", "a/c/d.py": "no",
        "e.cpython-311-x86_64-linux-gnu.so": "E", "e.py": "shadowed", "notes.txt": "no",
    }.items():  # fmt: skip
        (torch / name).parent.mkdir(parents=True, exist_ok=True)
        (torch / name).write_text(text)
    (torch / "_inductor").mkdir()
    (torch / "_inductor/script.ld").write_text("LD")
    suffixes = module_suffixes("3.11", "x86_64")
    found = torch_key(torch, version="2.11.0+cpu", suffixes=suffixes)
    wanted = "2.11.0+cpu" + "aA" + "a.zAZ" + "bB" + "eE" + "LD"
    assert found == hashlib.sha256(wanted.encode()).digest()


@pytest.mark.parametrize(
    ("package", "version", "known"),
    [
        ("torch", "2.9.1+cu128", False),
        ("torch", "2.10.0+cu128", True),
        ("torch", "2.15.0", True),
        ("torch", "2.16.0.dev20261130", False),
        ("triton", "3.5.1", False),
        ("triton", "3.9.0", True),
        ("triton", "nonsense", False),
    ],
)
def test_keys_are_computed_for_releases_that_were_compared(
    package: str, version: str, *, known: bool
) -> None:
    assert is_known(package, version) == known


def test_a_torch_for_another_interpreter_has_no_key_here(tmp_path: Path) -> None:
    suffixes = module_suffixes("3.13", "x86_64")
    assert can_import(tmp_path, suffixes)
    (tmp_path / "_C.cpython-313t-x86_64-linux-gnu.so").touch()
    assert not can_import(tmp_path, suffixes)
    (tmp_path / "_C.cpython-313-x86_64-linux-gnu.so").touch()
    assert can_import(tmp_path, suffixes)
