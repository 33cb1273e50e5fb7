"""Loader faults of every kind on a small machine: who is named, how badly, and what cures it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from envdoctor.facts import NvidiaFact
from envdoctor.verdict import Severity
from tests.elf_builder import Elf, build
from tests.loader_faults import (
    COMPAT,
    FAULTS,
    OLD_TOOLKIT,
    Wanted,
    cudnn_part_on_path,
    extension_for_cuda_11,
    extension_of_old_abi,
    let_cudnn_name,
    lost_conda_link,
    no_libcuda,
    record_and_library_gone,
    replace_torch_library,
    two_runtimes,
)
from tests.loader_machine import (
    NEW_ABI,
    NVIDIA,
    OLD_ABI,
    PARTS,
    SYSTEM,
    TORCH,
    Machine,
    make_machine,
    named,
    put_driver,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return make_machine(tmp_path)


@pytest.mark.parametrize(
    ("break_it", "wanted"), FAULTS, ids=[break_it.__name__ for break_it, _ in FAULTS]
)
def test_fault_is_one_finding(
    machine: Machine, break_it: Callable[[Machine], None], wanted: Wanted
) -> None:
    break_it(machine)
    ((check, problem),) = machine.problems()
    assert check == wanted.check
    assert problem.culprit.endswith(wanted.culprit)
    assert problem.severity is wanted.severity
    assert problem.owner == wanted.owner
    assert problem.remedy.kind == wanted.kind
    assert problem.evidence
    if wanted.command:
        assert problem.remedy.commands[-1].endswith(wanted.command)


def newer_cudnn_and_nccl_on_path(machine: Machine) -> None:
    for name in ("libcudnn.so.9", "libnccl.so.2", "libcudart.so.13"):
        machine.put(f"usr/local/cuda-13.0/lib64/{name}")
    machine.variables["LD_LIBRARY_PATH"] = "/usr/local/cuda-13.0/lib64"


def system_cudnn_with_a_part_that_this_one_does_not_open(machine: Machine) -> None:
    for name in ("libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn_engines_tensor_ir.so.9"):
        machine.put(f"{SYSTEM}/{name}")


def system_cudnn_with_a_part_that_this_one_does_not_name(machine: Machine) -> None:
    let_cudnn_name(machine, "libcudnn_graph.so", "libcudnn_ops.so")
    machine.put(f"{SYSTEM}/libcudnn_new.so.9")


def same_cudnn_of_the_system(machine: Machine) -> None:
    machine.put("opt/cudnn/libcudnn_graph.so.9.10.2", Elf(soname="libcudnn_graph.so.9"))
    machine.link("opt/cudnn/libcudnn_graph.so.9", "libcudnn_graph.so.9.10.2")
    machine.variables["LD_LIBRARY_PATH"] = "/opt/cudnn"


def conda_with_its_link(machine: Machine) -> None:
    lost_conda_link(machine)
    (machine.environment.prefix / "lib/libstdc++.so.6").symlink_to("libstdc++.so.6.0.34")


def same_toolkit_on_path(machine: Machine) -> None:
    spec = NVIDIA["nvidia-nvjitlink-cu12"][2]["libnvJitLink.so.12"]
    machine.put(f"{OLD_TOOLKIT}/libnvJitLink.so.12", spec)
    machine.variables["LD_LIBRARY_PATH"] = f"/{OLD_TOOLKIT}"


def newer_toolkit_on_path(machine: Machine) -> None:
    spec = NVIDIA["nvidia-nvjitlink-cu12"][2]["libnvJitLink.so.12"]
    newer = replace(spec, defines=(*spec.defines, "__nvJitLinkComplete_12_9"))
    machine.put(f"{OLD_TOOLKIT}/libnvJitLink.so.12", newer)
    machine.variables["LD_LIBRARY_PATH"] = f"/{OLD_TOOLKIT}"


def cudnn_with_rpath_and_a_part_on_path(machine: Machine) -> None:
    """Since 9.24 cuDNN's main library has an RPATH, which comes before the variable."""
    spec = Elf(rpath="$ORIGIN", defines=("cudnnCreate",))
    files = {"nvidia/cudnn/lib/libcudnn.so.9": spec}
    files |= {f"nvidia/cudnn/lib/libcudnn_{part}.so.9": Elf() for part in PARTS}
    machine.install("nvidia-cudnn-cu12", "9.10.2.21", files)
    cudnn_part_on_path(machine)


def own_folders_on_path(machine: Machine) -> None:
    folders = [f"{machine.site}/nvidia/{part}/lib" for _, part, _ in NVIDIA.values()]
    machine.variables["LD_LIBRARY_PATH"] = ":".join(["", *folders, ""])


def newer_compat_on_data_centre_gpu(machine: Machine) -> None:
    put_driver(machine, COMPAT, "590.10.01")
    machine.config("00-compat", f"/{COMPAT}")


def second_runtime_that_nobody_asks_for(machine: Machine) -> None:
    machine.put("usr/local/cuda-13.0/lib64/libcudart.so.13")
    machine.config("zz-cuda", "/usr/local/cuda-13.0/lib64")


def two_runtimes_and_the_choice_made(machine: Machine) -> None:
    two_runtimes(machine)
    machine.variables["CUDNN_FRONTEND_CUDART_LIB_NAME"] = "libcudart.so.12"


def two_runtimes_and_a_frontend_that_takes_one(machine: Machine) -> None:
    second_runtime_that_nobody_asks_for(machine)
    machine.install("nvidia-cudnn-frontend", "1.25.0", {})


def driver_library_without_a_version_in_its_name(machine: Machine) -> None:
    """As under WSL, where libcuda.so.1 is a file of its own."""
    no_libcuda(machine)
    machine.put(f"{SYSTEM}/libcuda.so.1")


def cpu_torch_with_two_runtimes(machine: Machine) -> None:
    two_runtimes(machine)
    machine.nvidia = NvidiaFact(num_devices=0)
    machine.environment.install(
        "torch", "2.9.1", {"torch/version.py": b"__version__ = '2.9.1+cpu'\n"}
    )
    for library in (machine.site / "torch").glob("**/*.so"):
        library.unlink()


def no_driver_library_without_a_gpu(machine: Machine) -> None:
    no_libcuda(machine)
    machine.nvidia = NvidiaFact(num_devices=0)


def root_without_a_system(machine: Machine) -> None:
    for name in ("libc.so.6", "libstdc++.so.6"):
        (machine.root / SYSTEM / name).unlink()


def extension_that_fits(machine: Machine) -> None:
    spec = Elf(
        needed=("libc10.so", "libtorch.so", "libcudart.so.12", "libavutil.so.58"),
        undefined=(NEW_ABI, "PyLong_Type"),
        weak=(OLD_ABI,),
    )
    machine.install("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": spec}, ("torch",))


def library_for_another_cuda_beside_one_that_fits(machine: Machine) -> None:
    """bitsandbytes ships one library for each CUDA release and opens the one that fits."""
    files = {
        f"bitsandbytes/libbitsandbytes_cuda{release}.so": Elf(needed=(f"libcudart.so.{major}",))
        for release, major in (("118", "11.0"), ("128", "12"), ("130", "13"))
    }
    machine.install("bitsandbytes", "0.48.0", files, ("torch",))


@pytest.mark.parametrize(
    "change",
    [
        lambda machine: None,
        newer_cudnn_and_nccl_on_path,
        system_cudnn_with_a_part_that_this_one_does_not_open,
        system_cudnn_with_a_part_that_this_one_does_not_name,
        same_cudnn_of_the_system,
        conda_with_its_link,
        same_toolkit_on_path,
        newer_toolkit_on_path,
        cudnn_with_rpath_and_a_part_on_path,
        own_folders_on_path,
        newer_compat_on_data_centre_gpu,
        second_runtime_that_nobody_asks_for,
        two_runtimes_and_the_choice_made,
        two_runtimes_and_a_frontend_that_takes_one,
        driver_library_without_a_version_in_its_name,
        cpu_torch_with_two_runtimes,
        no_driver_library_without_a_gpu,
        root_without_a_system,
        extension_that_fits,
        library_for_another_cuda_beside_one_that_fits,
    ],
    ids=lambda change: change.__name__.strip("<>"),
)
def test_what_does_no_harm_is_no_finding(
    machine: Machine, change: Callable[[Machine], None]
) -> None:
    change(machine)
    assert machine.problems() == []


def test_remedy_names_the_abi_that_torch_has(machine: Machine) -> None:
    extension_of_old_abi(machine)
    ((_, problem),) = machine.problems()
    assert "cxx11abiTRUE" in problem.remedy.text
    replace_torch_library(machine, "libc10.so", replace(TORCH["libc10.so"], defines=(OLD_ABI,)))
    spec = Elf(needed=("libc10.so",), undefined=(NEW_ABI,))
    machine.install("flash-attn", "2.7.4.post1", {"flash_attn_2_cuda.so": spec}, ("torch",))
    ((_, problem),) = machine.problems()
    assert "cxx11abiFALSE" in problem.remedy.text


def test_extension_for_another_cuda_is_named(machine: Machine) -> None:
    extension_for_cuda_11(machine)
    found = [
        problem for check, problem in machine.problems() if check == "extension-for-another-torch"
    ]
    assert [problem.culprit for problem in found] == ["sgl-kernel"]
    assert "libcudart.so.11.0" in found[0].message


def test_library_of_torch_lost_with_its_record_is_torchs(machine: Machine) -> None:
    (machine.site / "torch/lib/libc10.so").unlink()
    (next(machine.site.glob("torch-*.dist-info")) / "RECORD").unlink()
    found = [problem for _, problem in machine.problems() if problem.severity is Severity.ERROR]
    assert [problem.culprit for problem in found] == ["libc10.so"]
    assert found[0].remedy.commands[0].endswith(" torch==2.9.1")


def test_library_of_a_package_that_nothing_requires_names_the_package(machine: Machine) -> None:
    shutil.rmtree(next(machine.site.glob("nvidia_nccl*.dist-info")))
    (machine.site / "nvidia/nccl/lib/libnccl.so.2").unlink()
    metadata = next(machine.site.glob("torch-*.dist-info")) / "METADATA"
    lines = metadata.read_text().splitlines()
    metadata.write_text("\n".join(line for line in lines if "nccl" not in line) + "\n")
    found = [problem for _, problem in machine.problems() if problem.culprit == "libnccl.so.2"]
    assert "nvidia-nccl" in found[0].remedy.text


def test_runtime_that_something_requires_is_not_uninstalled(machine: Machine) -> None:
    two_runtimes(machine)
    machine.install("needs-it", "1.0", {}, ("nvidia-cuda-runtime",))
    ((check, problem),) = machine.problems()
    assert (check, problem.culprit) == ("two-cuda-runtimes", "LD_LIBRARY_PATH")


def test_library_lost_with_its_record_is_named_once(machine: Machine) -> None:
    record_and_library_gone(machine)
    found = [problem for _, problem in machine.problems() if problem.severity is Severity.ERROR]
    assert [(problem.culprit, problem.remedy.kind) for problem in found] == [
        ("libnccl.so.2", "reinstall-package")
    ]


@pytest.mark.parametrize("name", list(NVIDIA))
def test_package_that_is_gone_hides_its_missing_libraries(machine: Machine, name: str) -> None:
    _, part, _ = NVIDIA[name]
    shutil.rmtree(machine.site / "nvidia" / part)
    shutil.rmtree(next(machine.site.glob(f"{name.replace('-', '_')}-*.dist-info")))
    ((check, problem),) = machine.problems()
    assert (check, problem.culprit) == ("required-package-missing", name)


def test_part_of_cudnn_that_is_gone_is_damage_though_the_system_has_one(machine: Machine) -> None:
    (machine.site / "nvidia/cudnn/lib/libcudnn_ops.so.9").unlink()
    machine.put(f"{SYSTEM}/libcudnn_ops.so.9")
    ((check, problem),) = machine.problems()
    assert (check, problem.culprit) == ("package-files-damaged", "nvidia-cudnn-cu12")


@pytest.mark.parametrize("name", list(NVIDIA))
def test_library_for_another_machine_is_its_packages_damage(machine: Machine, name: str) -> None:
    _, part, libraries = NVIDIA[name]
    library = next(iter(libraries))
    path = machine.site / "nvidia" / part / "lib" / library
    path.write_bytes(build(named(library, replace(libraries[library], machine=183))))
    ((check, problem),) = machine.problems()
    assert (check, problem.culprit) == ("package-files-damaged", name)


@pytest.mark.parametrize("name", list(NVIDIA))
def test_library_that_is_gone_is_its_packages_damage(machine: Machine, name: str) -> None:
    _, part, libraries = NVIDIA[name]
    (machine.site / "nvidia" / part / "lib" / next(iter(libraries))).unlink()
    ((check, problem),) = machine.problems()
    assert (check, problem.culprit) == ("package-files-damaged", name)
