"""Loader faults of every kind, and what must be said of each."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from envdoctor.facts import Gpu, NvidiaFact
from envdoctor.verdict import Severity
from tests.elf_builder import Elf, build
from tests.loader_machine import (
    DRIVER,
    NVIDIA,
    OLD_ABI,
    SYSTEM,
    TORCH,
    Machine,
    named,
    put_driver,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OLD_TOOLKIT = "usr/local/cuda-12.1/lib64"
COMPAT = "usr/local/cuda-12.9/compat"


@dataclass(frozen=True)
class Wanted:
    """What the only finding must say."""

    check: str
    culprit: str
    kind: str
    command: str = ""
    severity: Severity = Severity.ERROR
    owner: str = "user"


def old_nvjitlink_on_path(machine: Machine) -> None:
    machine.put(f"{OLD_TOOLKIT}/libnvJitLink.so.12", Elf(defines=("__nvJitLinkComplete_12_1",)))
    machine.variables["LD_LIBRARY_PATH"] = f"/{OLD_TOOLKIT}:/keep/this"


def nvjitlink_of_another_name(machine: Machine) -> None:
    spec = Elf(
        soname="libnvJitLink.so.13", defines=("__nvJitLinkComplete_12_8", "nvJitLinkVersion")
    )
    machine.put(f"{OLD_TOOLKIT}/libnvJitLink.so.12", spec)
    machine.variables["LD_LIBRARY_PATH"] = f"/{OLD_TOOLKIT}"


def empty_nvjitlink_on_path(machine: Machine) -> None:
    (machine.root / OLD_TOOLKIT).mkdir(parents=True)
    (machine.root / OLD_TOOLKIT / "libnvJitLink.so.12").write_bytes(b"")
    machine.variables["LD_LIBRARY_PATH"] = f"/{OLD_TOOLKIT}"


def older_nvjitlink_that_serves(machine: Machine) -> None:
    machine.put(f"{OLD_TOOLKIT}/libnvJitLink.so.12", Elf(defines=("__nvJitLinkComplete_12_8",)))
    machine.variables["LD_LIBRARY_PATH"] = f"/{OLD_TOOLKIT}"


def old_nccl_preloaded(machine: Machine) -> None:
    path = machine.put("opt/nccl/libnccl.so.2", Elf(defines=("ncclAllReduce",)))
    machine.variables["LD_PRELOAD"] = f"{path} /usr/lib/libtcmalloc.so.4"


def old_nccl_preloaded_by_the_machine(machine: Machine) -> None:
    path = machine.put("opt/nccl/libnccl.so.2", Elf(defines=("ncclAllReduce",)))
    (machine.root / "etc").mkdir(exist_ok=True)
    (machine.root / "etc/ld.so.preload").write_text(path)


def old_nvjitlink_configured(machine: Machine) -> None:
    """Without a RUNPATH of its own, libcusparse finds what the machine's files name."""
    spec = replace(NVIDIA["nvidia-cusparse-cu12"][2]["libcusparse.so.12"], runpath="")
    machine.install(
        "nvidia-cusparse-cu12", "12.5.8.93", {"nvidia/cusparse/lib/libcusparse.so.12": spec}
    )
    machine.put(f"{OLD_TOOLKIT}/libnvJitLink.so.12", Elf(defines=("__nvJitLinkComplete_12_1",)))
    machine.config("cuda", f"/{OLD_TOOLKIT}")


def cudnn_part_of_the_system(machine: Machine) -> None:
    machine.put(f"{SYSTEM}/libcudnn_engines_tensor_ir.so.9")
    retag_cudnn(machine, "9.20.0.48")


def cudnn_part_configured(machine: Machine) -> None:
    machine.put("opt/cudnn/libcudnn_ext.so.9")
    machine.config("cudnn", "/opt/cudnn")
    retag_cudnn(machine, "9.24.0.43")


def cudnn_part_nobody_knows(machine: Machine) -> None:
    machine.put(f"{SYSTEM}/libcudnn_new.so.9")


def cudnn_part_that_this_one_names(machine: Machine) -> None:
    let_cudnn_name(machine, "libcudnn_graph.so", "libcudnn_new.so")
    machine.put(f"{SYSTEM}/libcudnn_new.so.9")


def let_cudnn_name(machine: Machine, *names: str) -> None:
    """Put names into cuDNN's main library where real ones have them: as text."""
    text = b"".join(b"\0" + name.encode() + b"\0" for name in names)
    libraries = NVIDIA["nvidia-cudnn-cu12"][2]
    files = {
        f"nvidia/cudnn/lib/{name}": build(named(name, spec)) for name, spec in libraries.items()
    }
    files["nvidia/cudnn/lib/libcudnn.so.9"] += text
    machine.environment.install("nvidia-cudnn-cu12", "9.10.2.21", files)


def cudnn_part_on_path(machine: Machine) -> None:
    machine.put("opt/cudnn/libcudnn_graph.so.9.13.0", Elf(soname="libcudnn_graph.so.9"))
    machine.link("opt/cudnn/libcudnn_graph.so.9", "libcudnn_graph.so.9.13.0")
    machine.variables["LD_LIBRARY_PATH"] = "/opt/cudnn"


def retag_cudnn(machine: Machine, version: str) -> None:
    shutil.rmtree(next(machine.site.glob("nvidia_cudnn*.dist-info")))
    libraries = NVIDIA["nvidia-cudnn-cu12"][2]
    files = {f"nvidia/cudnn/lib/{name}": spec for name, spec in libraries.items()}
    machine.install("nvidia-cudnn-cu12", version, files)
    info = next(machine.site.glob("torch-*.dist-info"))
    text = (info / "METADATA").read_text().replace("9.10.2.21", version)
    (info / "METADATA").write_text(text)
    rows = (info / "RECORD").read_text().splitlines(keepends=True)
    own = f"{info.name}/METADATA,"
    (info / "RECORD").write_text(
        "".join(f"{own},{len(text)}\n" if row.startswith(own) else row for row in rows)
    )


def split_folders(machine: Machine) -> None:
    other = machine.environment.prefix / "lib64/python3.11/site-packages"
    other.mkdir(parents=True)
    (machine.site / "nvidia").rename(other / "nvidia")
    for info in machine.site.glob("nvidia_*.dist-info"):
        info.rename(other / info.name)


def system_library_gone(machine: Machine) -> None:
    (machine.root / SYSTEM / "libstdc++.so.6").unlink()


def record_and_library_gone(machine: Machine) -> None:
    (machine.site / "nvidia/nccl/lib/libnccl.so.2").unlink()
    (next(machine.site.glob("nvidia_nccl*.dist-info")) / "RECORD").unlink()


def dangling_conda_link(machine: Machine) -> None:
    lost_conda_link(machine)
    (machine.environment.prefix / "lib/libstdc++.so.6.0.34").unlink()
    (machine.environment.prefix / "lib/libstdc++.so.6").symlink_to("libstdc++.so.6.0.34")


def lost_conda_link(machine: Machine) -> None:
    prefix = machine.environment.prefix
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta/libstdcxx-15.1.0-h8f9b012_4.json").write_text("{}")
    (prefix / "bin/python").write_bytes(build(Elf(kind=2, rpath="$ORIGIN/../lib")))
    runtime = Elf(soname="libstdc++.so.6", versions_defined=("GLIBCXX_3.4.30", "GLIBCXX_3.4.34"))
    (prefix / "lib/libstdc++.so.6.0.34").write_bytes(build(runtime))
    need_newer_runtime(machine)


def need_newer_runtime(machine: Machine) -> None:
    runtime = Elf(soname="libstdc++.so.6", versions_defined=("GLIBCXX_3.4.30",))
    machine.put(f"{SYSTEM}/libstdc++.so.6.0.30", runtime)
    spec = Elf(needed=("libstdc++.so.6",), versions_needed={"libstdc++.so.6": ("GLIBCXX_3.4.34",)})
    machine.install("fast-ext", "1.0", {"fast_ext.cpython-311-x86_64-linux-gnu.so": spec})


def torch_needs_newer_runtime(machine: Machine) -> None:
    runtime = Elf(soname="libstdc++.so.6", versions_defined=("GLIBCXX_3.4.18",))
    machine.put(f"{SYSTEM}/libstdc++.so.6.0.30", runtime)
    spec = replace(TORCH["libc10.so"], versions_needed={"libstdc++.so.6": ("GLIBCXX_3.4.22",)})
    replace_torch_library(machine, "libc10.so", spec)


def older_runtime_on_path(machine: Machine) -> None:
    runtime = Elf(soname="libstdc++.so.6", versions_defined=("GLIBCXX_3.4.30", "GLIBCXX_3.4.34"))
    need_newer_runtime(machine)
    machine.put(f"{SYSTEM}/libstdc++.so.6.0.30", runtime)
    old = Elf(versions_defined=("GLIBCXX_3.4.20",))
    machine.put("opt/matlab/libstdc++.so.6", old)
    machine.variables["LD_LIBRARY_PATH"] = "/opt/matlab"


def replace_torch_library(machine: Machine, name: str, spec: Elf) -> None:
    info = next(machine.site.glob("torch-*.dist-info"))
    path = machine.site / "torch/lib" / name
    path.write_bytes(build(named(name, spec)))
    record = (info / "RECORD").read_text().splitlines()
    changed = [
        f"{line.rpartition(',')[0]},{path.stat().st_size}" if f"/{name}," in line else line
        for line in record
    ]
    (info / "RECORD").write_text("\n".join([*changed, ""]))


def extension_of_old_abi(machine: Machine) -> None:
    spec = Elf(needed=("libc10.so", "libtorch.so"), undefined=(OLD_ABI, "PyLong_Type"))
    machine.install("flash-attn", "2.7.4.post1", {"flash_attn_2_cuda.so": spec}, ("torch",))


def torchvision_of_old_abi(machine: Machine) -> None:
    """What it says of itself is right; what it is linked to is not."""
    spec = Elf(needed=("libc10.so", "libtorch.so"), undefined=(OLD_ABI,))
    machine.install("torchvision", "0.24.1", {"torchvision/_C.so": spec}, ("torch==2.9.1",))
    version = machine.site / "torchvision/version.py"
    version.write_text("__version__ = '0.24.1+cu128'\ncuda = '12.8'\n")


def extension_for_cuda_11(machine: Machine) -> None:
    spec = Elf(needed=("libtorch.so", "libcudart.so.11.0"))
    machine.install("sgl-kernel", "0.3.18", {"sgl_kernel/common_ops.abi3.so": spec}, ("torch",))


def two_runtimes(machine: Machine) -> None:
    machine.install("nvidia-cuda-runtime", "13.0.96", {"nvidia/cu13/lib/libcudart.so.13": Elf()})
    machine.install("nvidia-cudnn-frontend", "1.19.0", {})
    machine.variables["LD_LIBRARY_PATH"] = f"{machine.site}/nvidia/cu13/lib"


def two_runtimes_of_which_one_is_left_over(machine: Machine) -> None:
    two_runtimes(machine)
    shutil.rmtree(next(machine.site.glob("nvidia_cudnn_frontend*.dist-info")))


def two_runtimes_of_which_one_is_the_systems(machine: Machine) -> None:
    machine.put("usr/local/cuda-13.0/lib64/libcudart.so.13")
    machine.config("zz-cuda", "/usr/local/cuda-13.0/lib64")
    machine.install("transformer-engine", "2.4", {})


def no_libcuda(machine: Machine) -> None:
    for path in (machine.root / SYSTEM).glob("libcuda.so*"):
        path.unlink()


def no_libcuda_in_container(machine: Machine) -> None:
    no_libcuda(machine)
    machine.variables["NVIDIA_DRIVER_CAPABILITIES"] = "utility,video"


def compat_configured(machine: Machine) -> None:
    put_driver(machine, COMPAT, "575.57.08")
    machine.config("00-compat", f"/{COMPAT}")


def compat_on_path(machine: Machine) -> None:
    put_driver(machine, COMPAT, "575.57.08")
    machine.variables["LD_LIBRARY_PATH"] = f"/{COMPAT}"


def newer_compat_on_consumer_gpu(machine: Machine) -> None:
    put_driver(machine, COMPAT, "590.10.01")
    machine.config("00-compat", f"/{COMPAT}")
    gpu = Gpu(index=0, name="NVIDIA GeForce RTX 4090", capability="8.9", memory_bytes=1 << 34)
    machine.nvidia = NvidiaFact(num_devices=1, driver=DRIVER, gpus=(gpu,))


def rpath_of_cusparse_leads_out(machine: Machine) -> None:
    spec = replace(
        NVIDIA["nvidia-cusparse-cu12"][2]["libcusparse.so.12"], runpath=f"/{OLD_TOOLKIT}"
    )
    path = "nvidia/cusparse/lib/libcusparse.so.12"
    machine.install("nvidia-cusparse-cu12", "12.5.8.93", {path: spec})
    machine.put(f"{OLD_TOOLKIT}/libnvJitLink.so.12", Elf(defines=("__nvJitLinkComplete_12_1",)))


def stub_on_path(machine: Machine) -> None:
    machine.put("usr/local/cuda/lib64/stubs/libcuda.so", Elf(soname="libcuda.so.1"))
    machine.link("opt/lib/libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so")
    machine.variables["LD_LIBRARY_PATH"] = "/opt/lib"


def lone_libcuda_of_another_driver(machine: Machine) -> None:
    no_libcuda(machine)
    put_driver(machine, SYSTEM, "550.90.07")


FAULTS: list[tuple[Callable[[Machine], None], Wanted]] = [
    (
        old_nvjitlink_on_path,
        Wanted(
            "library-shadowed", "LD_LIBRARY_PATH", "unset-env", "export LD_LIBRARY_PATH=/keep/this"
        ),
    ),
    (
        nvjitlink_of_another_name,
        Wanted("library-shadowed", "LD_LIBRARY_PATH", "unset-env", "unset LD_LIBRARY_PATH"),
    ),
    (
        empty_nvjitlink_on_path,
        Wanted("library-shadowed", "LD_LIBRARY_PATH", "unset-env", "unset LD_LIBRARY_PATH"),
    ),
    (
        older_nvjitlink_that_serves,
        Wanted("library-shadowed", "LD_LIBRARY_PATH", "unset-env", severity=Severity.WARNING),
    ),
    (
        old_nccl_preloaded,
        Wanted(
            "library-shadowed",
            "LD_PRELOAD",
            "unset-env",
            "export LD_PRELOAD=/usr/lib/libtcmalloc.so.4",
        ),
    ),
    (
        old_nccl_preloaded_by_the_machine,
        Wanted("library-shadowed", "/etc/ld.so.preload", "remove-from-loader-path", owner="image"),
    ),
    (
        old_nvjitlink_configured,
        Wanted(
            "library-shadowed",
            "/etc/ld.so.conf.d/cuda.conf",
            "remove-from-loader-path",
            "sudo ldconfig",
            owner="image",
        ),
    ),
    (
        rpath_of_cusparse_leads_out,
        Wanted("library-shadowed", "libcusparse.so.12", "remove-from-loader-path"),
    ),
    (
        cudnn_part_of_the_system,
        Wanted(
            "cudnn-from-two-places",
            f"/{SYSTEM}/libcudnn_engines_tensor_ir.so.9",
            "remove-from-loader-path",
            owner="image",
        ),
    ),
    (
        cudnn_part_configured,
        Wanted(
            "cudnn-from-two-places",
            "/etc/ld.so.conf.d/cudnn.conf",
            "remove-from-loader-path",
            "sudo ldconfig",
            owner="image",
        ),
    ),
    (
        cudnn_part_nobody_knows,
        Wanted(
            "cudnn-from-two-places",
            f"/{SYSTEM}/libcudnn_new.so.9",
            "remove-from-loader-path",
            severity=Severity.WARNING,
            owner="image",
        ),
    ),
    (
        cudnn_part_that_this_one_names,
        Wanted(
            "cudnn-from-two-places",
            f"/{SYSTEM}/libcudnn_new.so.9",
            "remove-from-loader-path",
            owner="image",
        ),
    ),
    (
        cudnn_part_on_path,
        Wanted("cudnn-from-two-places", "LD_LIBRARY_PATH", "unset-env", "unset LD_LIBRARY_PATH"),
    ),
    (
        split_folders,
        Wanted("lib-lib64-split", "lib64/python3.11/site-packages/nvidia", "recreate-venv"),
    ),
    (
        system_library_gone,
        Wanted(
            "needed-library-not-found", "libstdc++.so.6", "install-system-package", owner="image"
        ),
    ),
    (
        dangling_conda_link,
        Wanted(
            "libstdcxx-too-old",
            "lib/libstdc++.so.6",
            "reinstall-package",
            "--force-reinstall libstdcxx",
        ),
    ),
    (
        lost_conda_link,
        Wanted(
            "libstdcxx-too-old",
            "lib/libstdc++.so.6",
            "reinstall-package",
            "--force-reinstall libstdcxx",
        ),
    ),
    (
        need_newer_runtime,
        Wanted(
            "libstdcxx-too-old",
            f"/{SYSTEM}/libstdc++.so.6",
            "install-system-package",
            owner="image",
        ),
    ),
    (
        torch_needs_newer_runtime,
        Wanted(
            "libstdcxx-too-old",
            f"/{SYSTEM}/libstdc++.so.6",
            "install-system-package",
            owner="image",
        ),
    ),
    (
        older_runtime_on_path,
        Wanted("libstdcxx-too-old", "LD_LIBRARY_PATH", "unset-env", "unset LD_LIBRARY_PATH"),
    ),
    (
        extension_of_old_abi,
        Wanted(
            "extension-for-another-torch",
            "flash-attn",
            "install-matching-wheel",
            "flash-attn==2.7.4.post1",
        ),
    ),
    (
        torchvision_of_old_abi,
        Wanted(
            "extension-for-another-torch",
            "torchvision",
            "install-matching-wheel",
            "torchvision==0.24.1",
        ),
    ),
    (
        two_runtimes,
        Wanted(
            "two-cuda-runtimes",
            "nvidia-cuda-runtime",
            "uninstall-package",
            "unset LD_LIBRARY_PATH",
        ),
    ),
    (
        two_runtimes_of_which_one_is_left_over,
        Wanted(
            "two-cuda-runtimes",
            "nvidia-cuda-runtime",
            "uninstall-package",
            severity=Severity.WARNING,
        ),
    ),
    (
        two_runtimes_of_which_one_is_the_systems,
        Wanted(
            "two-cuda-runtimes",
            "/etc/ld.so.conf.d/zz-cuda.conf",
            "remove-from-loader-path",
            "sudo ldconfig",
            severity=Severity.WARNING,
            owner="image",
        ),
    ),
    (
        no_libcuda,
        Wanted("libcuda-missing", "libcuda.so.1", "install-system-package", owner="admin"),
    ),
    (
        no_libcuda_in_container,
        Wanted("libcuda-missing", "NVIDIA_DRIVER_CAPABILITIES", "container-option"),
    ),
    (
        compat_configured,
        Wanted(
            "libcuda-shadowed",
            "/etc/ld.so.conf.d/00-compat.conf",
            "remove-from-loader-path",
            "sudo ldconfig",
            owner="image",
        ),
    ),
    (
        compat_on_path,
        Wanted("libcuda-shadowed", "LD_LIBRARY_PATH", "unset-env", "unset LD_LIBRARY_PATH"),
    ),
    (
        newer_compat_on_consumer_gpu,
        Wanted(
            "libcuda-shadowed",
            "/etc/ld.so.conf.d/00-compat.conf",
            "remove-from-loader-path",
            "sudo ldconfig",
            owner="image",
        ),
    ),
    (
        stub_on_path,
        Wanted("libcuda-is-stub", "LD_LIBRARY_PATH", "unset-env", "unset LD_LIBRARY_PATH"),
    ),
    (
        lone_libcuda_of_another_driver,
        Wanted("libcuda-shadowed", f"/{SYSTEM}/libcuda.so.1", "reboot", owner="admin"),
    ),
]
