"""The simulated dynamic linker: where each rule of ld.so(8) decides."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envdoctor.probes.library_files import resolve_below
from envdoctor.probes.torch_preload import PreloadedLibrary, parse_preload
from tests.elf_builder import Elf, build
from tests.loader_machine import (
    NVIDIA,
    SYSTEM,
    TORCH,
    Machine,
    install_torch,
    make_machine,
    named,
    put_driver,
)

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.facts import FoundLibrary

TOOLKIT = "usr/local/cuda-12.1/lib64"
LISTS_ALL_ALWAYS = """
def _preload_cuda_deps(err=None):
    cuda_libs: list[tuple[str, str]] = [
        # order matters
        ("nvjitlink", "libnvJitLink.so.*[0-9]"),
        ("cusparse", "libcusparse.so.*[0-9]"),
    ]
    _preload_cuda_lib("nvtx", "libnvToolsExt.so.*[0-9]", required=False)


def _load_global_deps() -> None:
    try:
        ctypes.CDLL(path)
        if "libcudart.so" not in _maps:
            return
        _preload_cuda_deps()
    except OSError as err:
        _preload_cuda_deps(err)
"""
LISTS_SOME_ALWAYS = """
def _preload_cuda_deps(lib_folder: str, lib_name: str) -> None:
    ctypes.CDLL(lib_path)

# See Note [Global dependencies]
def _load_global_deps() -> None:
    try:
        ctypes.CDLL(path)
        if "nvidia/cuda_runtime/lib/libcudart.so" not in _maps:
            return
        _preload_cuda_deps("nvjitlink", "libnvJitLink.so.*[0-9]")
    except OSError as err:
        cuda_libs: Dict[str, str] = {
            'cudnn': 'libcudnn.so.*[0-9]',
        }

x = 1
"""
NVJITLINK = PreloadedLibrary("nvjitlink", "libnvJitLink.so.*[0-9]")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return make_machine(tmp_path)


def taken(machine: Machine, name: str) -> FoundLibrary:
    (found,) = [item.found for item in machine.loader().objects if item.found.name == name]
    return found


def shadow_everything(machine: Machine) -> str:
    for _, _, libraries in NVIDIA.values():
        for name in libraries:
            machine.put(f"{TOOLKIT}/{name}")
    return f"/{TOOLKIT}"


def test_rpath_comes_before_the_variable_and_runpath_after_it(machine: Machine) -> None:
    machine.variables["LD_LIBRARY_PATH"] = shadow_everything(machine)
    assert taken(machine, "libnccl.so.2").via == "RPATH"
    shadow = taken(machine, "libnvJitLink.so.12")
    assert (shadow.path, shadow.via) == (f"/{TOOLKIT}/libnvJitLink.so.12", "LD_LIBRARY_PATH")
    assert taken(machine, "libcudnn_graph.so.9").via == "LD_LIBRARY_PATH"


def test_rpath_of_those_that_loaded_an_object_counts(machine: Machine) -> None:
    """Without an RPATH of its own libtorch_cuda.so finds what that of libtorch.so leads to."""
    assert taken(machine, "libcusparse.so.12").via == "RPATH"
    library = machine.site / "torch/lib/libtorch_cuda.so"
    library.write_bytes(build(named(library.name, TORCH[library.name])))
    found = taken(machine, "libnccl.so.2")
    assert found.via == "RPATH"
    assert found.source.endswith("libtorch.so")


def test_preloaded_library_is_taken_before_any_rpath(machine: Machine) -> None:
    machine.variables["LD_PRELOAD"] = machine.put("opt/libnccl.so.2")
    found = taken(machine, "libnccl.so.2")
    assert (found.path, found.via) == ("/opt/libnccl.so.2", "LD_PRELOAD")


def test_machine_wide_preload_file_counts(machine: Machine) -> None:
    (machine.root / "etc").mkdir(exist_ok=True)
    (machine.root / "etc/ld.so.preload").write_text(machine.put("opt/libnccl.so.2") + "\n")
    assert taken(machine, "libnccl.so.2").source == "/etc/ld.so.preload"


def test_configured_folder_comes_before_the_default_ones(machine: Machine) -> None:
    machine.config("cuda", "/opt/compat")
    put_driver(machine, "opt/compat", "575.57.08")
    (first, second) = machine.loader().drivers
    assert (first.target, first.source) == (
        "libcuda.so.575.57.08", "/etc/ld.so.conf.d/cuda.conf"
    )  # fmt: skip
    assert second.path == f"/{SYSTEM}/libcuda.so.1"


def test_library_for_another_machine_is_passed_over(machine: Machine) -> None:
    machine.put(f"{TOOLKIT}/libnvJitLink.so.12", Elf(machine=183))
    machine.variables["LD_LIBRARY_PATH"] = f"/{TOOLKIT}"
    assert taken(machine, "libnvJitLink.so.12").via == "RUNPATH"


def test_file_that_is_no_library_stops_the_search(machine: Machine) -> None:
    machine.put(f"{TOOLKIT}/libnvJitLink.so.12")
    (machine.root / TOOLKIT / "libnvJitLink.so.12").write_bytes(b"")
    machine.variables["LD_LIBRARY_PATH"] = f"/{TOOLKIT}"
    (item,) = [
        item for item in machine.loader().objects if item.path == f"/{TOOLKIT}/libnvJitLink.so.12"
    ]
    assert item.error == "an empty file"


def test_what_torch_opens_by_path_is_loaded_already(machine: Machine) -> None:
    install_torch(machine, init=LISTS_ALL_ALWAYS)
    machine.variables["LD_LIBRARY_PATH"] = shadow_everything(machine)
    found = taken(machine, "libnvJitLink.so.12")
    assert (found.via, str(machine.site) in found.path) == ("opened", True)


def test_torch_opens_libraries_by_path_where_its_rpath_leads_nowhere(machine: Machine) -> None:
    install_torch(
        machine,
        init=LISTS_ALL_ALWAYS.replace('("nv', '("cuda_runtime", "libcudart.so.*[0-9]"),\n("nv'),
    )
    other = machine.environment.prefix / "other"
    (machine.site / "nvidia").rename(other)
    assert "libcudart.so.12" in machine.loader().missing()
    (machine.site / "cuda_runtime").mkdir()
    (other / "cuda_runtime/lib").rename(machine.site / "cuda_runtime/lib")
    assert taken(machine, "libcudart.so.12").via == "opened"


def test_interpreter_of_conda_finds_its_own_libraries(machine: Machine) -> None:
    prefix = machine.environment.prefix
    (prefix / "bin/python").unlink()
    (prefix / "conda-meta").mkdir()
    machine.put(f"{SYSTEM}/libcustom.so.1")
    (prefix / "lib/libstdc++.so.6").write_bytes(
        (machine.root / SYSTEM / "libstdc++.so.6.0.30").read_bytes()
    )
    assert taken(machine, "libstdc++.so.6").path == f"{prefix}/lib/libstdc++.so.6"


def test_one_file_under_two_names_is_loaded_once(machine: Machine) -> None:
    alias = machine.environment.prefix / "alias"
    alias.symlink_to(machine.site / "nvidia/nvjitlink/lib")
    machine.variables["LD_LIBRARY_PATH"] = str(alias)
    assert machine.loader().shadows == ()


@pytest.mark.parametrize("damage", ["loop", "fifo", "folder", "garbage"])
def test_hostile_files_on_the_path_do_not_stop_the_probe(machine: Machine, damage: str) -> None:
    machine.variables["LD_LIBRARY_PATH"] = f"/{TOOLKIT}:/etc/passwd:/no/such:\udcff:/{TOOLKIT}"
    target = machine.root / TOOLKIT / "libnvJitLink.so.12"
    target.parent.mkdir(parents=True)
    match damage:
        case "loop":
            target.symlink_to(target.name)
        case "fifo":
            os.mkfifo(target)
        case "folder":
            target.mkdir()
        case _:
            target.write_bytes(b"\x7fELF" + b"\xff" * 400)
    assert machine.loader().objects


@pytest.fixture(scope="module")
def shared_machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return make_machine(tmp_path_factory.mktemp("shared"))


@given(st.text(st.characters(exclude_categories=[])), st.text(max_size=40))
@settings(max_examples=40, deadline=None)
def test_variables_may_hold_anything(shared_machine: Machine, path: str, preload: str) -> None:
    variables = {"LD_LIBRARY_PATH": f"{path}:/{TOOLKIT}", "LD_PRELOAD": preload}
    assert replace(shared_machine, variables=variables).loader().objects


def test_absent_torch_loads_nothing(machine: Machine) -> None:
    shutil.rmtree(machine.site / "torch")
    assert machine.loader().objects == ()


@pytest.mark.parametrize(
    ("text", "failure", "always", "guards"),
    [
        pytest.param(
            LISTS_ALL_ALWAYS,
            ("libnvJitLink", "libcusparse", "libnvToolsExt"),
            ("libnvJitLink", "libcusparse", "libnvToolsExt"),
            ("libcudart.so",),
            id="2.10",
        ),
        pytest.param(
            LISTS_SOME_ALWAYS,
            ("libcudnn",),
            ("libnvJitLink",),
            ("nvidia/cuda_runtime/lib/libcudart.so",),
            id="2.6",
        ),
        pytest.param("import os\n", (), (), (), id="none"),
        pytest.param("\ndef _load_global_deps(", (), (), (), id="cut-short"),
    ],
)
def test_what_torch_preloads_is_read_from_its_text(
    text: str, failure: tuple[str, ...], always: tuple[str, ...], guards: tuple[str, ...]
) -> None:
    found = parse_preload(text)
    assert tuple(item.pattern.partition(".")[0] for item in found.on_failure) == failure
    assert tuple(item.pattern.partition(".")[0] for item in found.always) == always
    assert found.guards == guards


def test_optional_preloads_are_told_apart() -> None:
    *required, last = parse_preload(LISTS_ALL_ALWAYS).always
    assert required[0] == NVJITLINK
    assert all(item.is_required for item in required)
    assert last == last._replace(is_required=False)


def test_links_below_a_root_stay_below_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "lib").symlink_to("/usr/lib")
    (root / "usr/lib/a").symlink_to("../../../../../etc/passwd")
    (root / "usr/lib/b").symlink_to("b")
    assert resolve_below(str(root), f"{root}/lib/x.so") == f"{root}/usr/lib/x.so"
    assert resolve_below(str(root), f"{root}/lib/a") == f"{root}/etc/passwd"
    assert resolve_below(str(root), f"{root}/lib/b") == f"{root}/lib/b"
