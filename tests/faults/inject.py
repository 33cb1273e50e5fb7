"""Break copies of a real CUDA environment, one fault each.

A copy is a tree of hard links; every file that is altered has its link broken first, so the
original is never touched. Written for a torch of CUDA 13 from PyPI.

    python -m tests.faults.inject --base ENVIRONMENT --out FOLDER [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.environments import elf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CUDNN = "nvidia/cudnn/lib"
CUDNN_MAIN = f"{CUDNN}/libcudnn.so.9"
NCCL = "nvidia/nccl/lib/libnccl.so.2"
CUSPARSELT = "nvidia/cusparselt/lib/libcusparseLt.so.0"
LIBTORCH_CUDA = "torch/lib/libtorch_cuda.so"
PTXAS = "triton/backends/nvidia/bin/ptxas"
CUDNN_12 = "nvidia-cudnn-cu12==9.10.2.21"
CACHES = {
    "TRITON_CACHE_DIR": "{env}/cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": "{env}/cache/inductor",
}


@dataclass(frozen=True)
class Patient:
    """A copy of an environment, to be broken."""

    prefix: Path

    @property
    def site(self) -> Path:
        return next(self.prefix.glob("lib/python3.*/site-packages"))

    def own(self, path: str) -> Path:
        """Break the hard link of a file and return its path."""
        target = self.site / path
        copy = target.with_name(f"{target.name}.own")
        shutil.copy2(target, copy)
        copy.replace(target)
        return target

    def put(self, path: str, content: bytes | str) -> Path:
        target = self.site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target

    def remove(self, path: str) -> None:
        (self.site / path).unlink()

    def info(self, name: str) -> Path:
        return next(self.site.glob(f"{name.replace('-', '_')}-*.dist-info"))

    def version(self, name: str) -> str:
        return self.info(name).name.removesuffix(".dist-info").rpartition("-")[2]

    def retag(self, name: str, version: str) -> None:
        """Change the version that an installed distribution states, everywhere but in hashes."""
        before = self.info(name)
        after = before.with_name(f"{name.replace('-', '_')}-{version}.dist-info")
        shutil.copytree(before, after)
        shutil.rmtree(before)
        self.restate(after, version)
        record = after / "RECORD"
        record.write_text(record.read_text().replace(f"{before.name}/", f"{after.name}/"))

    @staticmethod
    def restate(info: Path, version: str) -> None:
        metadata = info / "METADATA"
        text = re.sub(r"(?m)^Version: .*$", f"Version: {version}", metadata.read_text(), count=1)
        metadata.write_text(text)

    def add(
        self, name: str, version: str, *, requires: Sequence[str] = (), files: Sequence[str] = ()
    ) -> None:
        """Write metadata of a distribution whose files are there already."""
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        headers = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        headers += [f"Requires-Dist: {line}" for line in requires]
        self.put(f"{info}/METADATA", "\n".join(headers) + "\n")
        self.put(f"{info}/INSTALLER", "pip\n")
        rows = [*files, f"{info}/METADATA", f"{info}/INSTALLER", f"{info}/RECORD"]
        self.put(f"{info}/RECORD", "".join(f"{row},,\n" for row in rows))

    def uv(self, command: str, *arguments: str) -> None:
        python = str(self.prefix / "bin/python")
        argv = [sys.executable, "-m", "uv", "pip", command, "-q", "--python", python, *arguments]
        subprocess.run(argv, check=True)


@dataclass(frozen=True)
class Fault:
    """One way to break an environment.

    Args:
        break_it: Breaks a copy.
        what: What was done.
        culprits: Regular expressions; one of them is in the culprit or the message of a finding.
        variables: Environment variables of the broken environment; `{env}` is its folder.
        deep: True if only hashes show it.
        repairable: True if `fix` can cure it.
        is_control: True if nothing is wrong with it: at most a note.
    """

    break_it: Callable[[Patient], object]
    what: str
    culprits: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    deep: bool = False
    repairable: bool = True
    is_control: bool = False


def flip(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    middle = path.stat().st_size // 2
    with path.open("r+b") as stream:
        stream.seek(middle)
        byte = stream.read(1)[0]
        stream.seek(middle)
        stream.write(bytes([byte ^ 0x10]))


def gut_cudnn(patient: Patient) -> None:
    for path in (patient.site / CUDNN).iterdir():
        path.unlink()


def install_cudnn12(patient: Patient) -> None:
    patient.uv("install", "--no-deps", CUDNN_12)


def install_and_uninstall_cudnn12(patient: Patient) -> None:
    install_cudnn12(patient)
    patient.uv("uninstall", "nvidia-cudnn-cu12")


def leave_engines(patient: Patient) -> None:
    patient.put("sglang/__init__.py", "__version__ = '0.5.6'\n")
    patient.put("flashinfer/__init__.py", "__version__ = '0.5.2'\n")
    patient.add("sglang", "0.5.6", requires=["torch"], files=["sglang/__init__.py"])
    files = ["flashinfer/__init__.py"]
    patient.add("flashinfer-python", "0.5.2", requires=["torch"], files=files)


def leave_engine_with_pins(patient: Patient) -> None:
    patient.put("sglang/__init__.py", "__version__ = '0.5.6'\n")
    pins = ["torch==2.9.1", "sgl-kernel==0.3.18"]
    patient.add("sglang", "0.5.6", requires=pins, files=["sglang/__init__.py"])


def leave_modules(patient: Patient) -> None:
    patient.put("sglang/__init__.py", "__version__ = '0.5.6'\n")
    patient.put("sglang/srt/__init__.py", "")
    patient.put("flashinfer/__init__.py", "__version__ = '0.5.2'\n")


def double_torch(patient: Patient) -> None:
    before = patient.info("torch")
    after = before.with_name("torch-2.8.0.dist-info")
    shutil.copytree(before, after)
    patient.restate(after, "2.8.0")


def leave_half_of_torch(patient: Patient) -> None:
    patient.put("~orch/__init__.py", "")
    patient.put("~orch/lib/libtorch_cpu.so", b"\x7fELF")
    patient.put("~orch-2.8.0.dist-info/METADATA", "Name: torch\nVersion: 2.8.0\n")


def shadow_cudnn(patient: Patient) -> None:
    for name in ("libcudnn.so.9", "libcudnn_graph.so.9"):
        path = patient.prefix / "shadow" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(elf(name))


def damage_triton_cache(patient: Patient) -> None:
    folder = patient.prefix / "cache/triton/KEY0ABCDEF"
    folder.mkdir(parents=True)
    (folder / "k.cubin").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(13))
    (folder / "k.json").write_text('{"target": {"backe')
    (folder / "__grp__k.json").write_text(
        json.dumps({"child_paths": {"k.cubin": f"{folder}/k.cubin", "k.json": f"{folder}/k.json"}})
    )


def damage_inductor_cache(patient: Patient) -> None:
    folder = patient.prefix / "cache/inductor"
    (folder / "fxgraph/ab/fabc").mkdir(parents=True)
    (folder / "fxgraph/ab/fabc/x").write_bytes(b"\x80\x05\x95\xff")
    (folder / "ab").mkdir()
    (folder / "ab/cabc.main.so").write_bytes(elf("c.so", machine=183))


def rename_extension(patient: Patient) -> None:
    path = next((patient.site / "torch").glob("_C.cpython-*.so"))
    path.rename(path.with_name(re.sub(r"cpython-\d+", "cpython-312", path.name)))


def shadow_torch(patient: Patient) -> None:
    (patient.prefix / "shadow").mkdir()
    (patient.prefix / "shadow/torch.py").write_text("x = 1\n")


def link_cudart_to_nothing(patient: Patient) -> None:
    path = next(patient.site.glob("nvidia/cu13/lib/libcudart.so.13"))
    path.unlink()
    path.symlink_to("libcudart.so.13.0.96")


def leave_cuda12(patient: Patient) -> None:
    for name, soname in (("cublas", "libcublas.so.12"), ("cuda_runtime", "libcudart.so.12")):
        file = f"nvidia/{name}/lib/{soname}"
        patient.put(file, elf(soname))
        patient.add(f"nvidia-{name.replace('_', '-')}-cu12", "12.8.4.1", files=[file])


def put_code_for_arm(patient: Patient) -> None:
    with patient.own("nvidia/cu13/lib/libcufft.so.12").open("r+b") as stream:
        stream.seek(18)
        stream.write(struct.pack("<H", 183))


def pretend_cpu_build(patient: Patient) -> None:
    path = patient.own("torch/version.py")
    text = re.sub(
        r"(?m)^cuda: Optional\[str\] = .*$", "cuda: Optional[str] = None", path.read_text()
    )
    path.write_text(re.sub(r"\+cu\d+", "+cpu", text))
    patient.retag("torch", f"{patient.version('torch')}+cpu")


def take_nvshmem(patient: Patient) -> None:
    shutil.rmtree(patient.info("nvidia-nvshmem-cu13"))
    shutil.rmtree(patient.site / "nvidia/nvshmem")


def truncate_libtorch(patient: Patient) -> None:
    path = patient.own(LIBTORCH_CUDA)
    os.truncate(path, path.stat().st_size // 2)


def take_record(patient: Patient) -> None:
    (patient.info("nvidia-nccl-cu13") / "RECORD").unlink()


def lock_ptxas(patient: Patient) -> None:
    patient.own(PTXAS).chmod(0o644)


FAULTS: dict[str, Fault] = {
    "clean": Fault(lambda patient: None, "nothing", is_control=True),
    "cudnn-metadata-only": Fault(gut_cudnn, "libcudnn*.so* deleted, metadata kept", ("cudnn",)),
    "cudnn12-over-cudnn13": Fault(
        install_cudnn12, "nvidia-cudnn-cu12 installed over -cu13", (r"nvidia.cudnn.cu12",)
    ),
    "cudnn12-uninstalled": Fault(
        install_and_uninstall_cudnn12, "and uninstalled again", (r"nvidia.cudnn.cu13",)
    ),
    "nccl-zero-bytes": Fault(lambda patient: patient.put(NCCL, b""), "libnccl emptied", ("nccl",)),
    "cusparselt-text-stub": Fault(
        lambda patient: patient.put(CUSPARSELT, "version https://git-lfs.github.com/spec/v1\n"),
        "libcusparseLt is a Git LFS pointer",
        (r"cusparse_?lt",),
    ),
    "cudnn-wrong-version": Fault(
        lambda patient: patient.retag("nvidia-cudnn-cu13", "9.10.2.21"),
        "nvidia-cudnn-cu13 retagged",
        ("cudnn",),
    ),
    "stray-serving": Fault(leave_engines, "sglang and flashinfer left", ("sglang", "flashinfer")),
    "stray-serving-pins": Fault(leave_engine_with_pins, "sglang with torch==2.9.1", ("sglang",)),
    "orphan-module-dirs": Fault(
        leave_modules, "modules of engines without metadata", ("sglang", "flashinfer")
    ),
    "two-torch-distinfo": Fault(double_torch, "a second torch dist-info", (r"torch-2\.8\.0",)),
    "half-uninstalled-torch": Fault(leave_half_of_torch, "~orch left by pip", ("~orch",)),
    "torch-retagged": Fault(
        lambda patient: patient.retag("torch", f"{patient.version('torch')}+cu128"),
        "torch says +cu128, its files are of CUDA 13",
        ("torch",),
    ),
    "triton-mismatch": Fault(
        lambda patient: patient.retag("triton", "3.4.0"), "triton retagged", ("triton",)
    ),
    # A control: from 9.24 on libcudnn.so.9 has an RPATH, which beats LD_LIBRARY_PATH. Before, it
    # has a RUNPATH, which does not, and the process aborts at its first call of cuDNN.
    "ldpath-old-cudnn": Fault(
        shadow_cudnn,
        "LD_LIBRARY_PATH names another libcudnn",
        variables={"LD_LIBRARY_PATH": "{env}/shadow"},
        is_control=True,
    ),
    "triton-cache-truncated": Fault(
        damage_triton_cache, "triton cache entry cut short", (r"triton.*cache",), CACHES
    ),
    "inductor-cache-corrupt": Fault(
        damage_inductor_cache, "inductor cache entries damaged", (r"inductor.*cache",), CACHES
    ),
    "bitflip-libtorch-cuda": Fault(
        lambda patient: flip(patient.own(LIBTORCH_CUDA)),
        "one bit of libtorch_cuda flipped",
        ("libtorch_cuda",),
        deep=True,
    ),
    "cudnn-sublib-bitflip": Fault(
        lambda patient: flip(patient.own(f"{CUDNN}/libcudnn_engines_precompiled.so.9")),
        "one bit of a cuDNN library flipped",
        ("cudnn_engines_precompiled",),
        deep=True,
    ),
    "abi-mismatch": Fault(rename_extension, "torch/_C for Python 3.12", (r"cp(ython-)?312",)),
    "shadow-torch-py": Fault(
        shadow_torch,
        "torch.py on PYTHONPATH",
        (r"shadow/torch\.py", "shadow.*torch"),
        {"PYTHONPATH": "{env}/shadow"},
        repairable=False,
    ),
    "record-gone": Fault(take_record, "RECORD of NCCL deleted", ("nccl",)),
    "cudart-dead-link": Fault(
        link_cudart_to_nothing, "libcudart is a dead link", (r"cuda.runtime|cudart",)
    ),
    "cuda12-left": Fault(
        leave_cuda12, "cuBLAS and cudart for CUDA 12 left", (r"nvidia.cublas.cu12",)
    ),
    "cufft-for-arm": Fault(put_code_for_arm, "libcufft is code for aarch64", ("cufft",)),
    "pretend-cpu": Fault(pretend_cpu_build, "torch says it is a CPU build", ("torch",)),
    "nvjitlink-gone": Fault(
        lambda patient: patient.remove("nvidia/cu13/lib/libnvJitLink.so.13"),
        "libnvJitLink deleted",
        ("nvjitlink",),
    ),
    "nvshmem-absent": Fault(take_nvshmem, "nvshmem absent altogether", ("nvshmem",)),
    "ptxas-gone": Fault(lambda patient: patient.remove(PTXAS), "ptxas deleted", ("ptxas",)),
    "ptxas-locked": Fault(lock_ptxas, "ptxas may not be run", ("ptxas",)),
    "libtorch-truncated": Fault(truncate_libtorch, "libtorch_cuda cut in half", ("libtorch_cuda",)),
    "cudnn-graph-gone": Fault(
        lambda patient: patient.remove(f"{CUDNN}/libcudnn_graph.so.9"),
        "libcudnn_graph deleted",
        ("cudnn_graph",),
    ),
}
"""Every fault by its name."""


def copy(base: Path, target: Path) -> Patient:
    """Copy an environment as hard links."""
    shutil.copytree(base, target, symlinks=True, copy_function=os.link)
    return Patient(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or FAULTS:
        FAULTS[name].break_it(copy(options.base, options.out / name))
        sys.stdout.write(f"{name}: {FAULTS[name].what}\n")


if __name__ == "__main__":
    main()
