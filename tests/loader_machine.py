"""A machine below a folder: an environment with torch for CUDA 12.8, and the system around it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envdoctor.diagnose import Place, gather, judge
from envdoctor.facts import (
    FactSet,
    Gpu,
    HostFact,
    LoaderFact,
    NvidiaFact,
    PolicyFact,
    VariablesFact,
)
from envdoctor.verdict import Problem, Severity
from tests.elf_builder import Elf, build
from tests.environments import Environment, make_environment

if TYPE_CHECKING:
    from pathlib import Path

SYSTEM = "usr/lib/x86_64-linux-gnu"
DRIVER = "580.95.05"
_ORIGIN = "$ORIGIN/../../nvidia"
RPATH = ":".join(
    f"{_ORIGIN}/{part}/lib"
    for part in ("cudnn", "nccl", "cuda_nvrtc", "cuda_runtime", "cusparse", "nvjitlink")
)
PARTS = ("graph", "ops")
NEW_ABI, OLD_ABI = "_ZN3c105ErrorC2ENSt7__cxx1112basic_stringE", "_ZN3c105ErrorC2ESs"

TORCH = {
    "libtorch_global_deps.so": Elf(needed=("libcudart.so.12", "libc.so.6")),
    "libc10.so": Elf(needed=("libstdc++.so.6", "libc.so.6"), defines=(NEW_ABI,)),
    "libtorch_cuda.so": Elf(
        needed=("libcusparse.so.12", "libnccl.so.2", "libcudnn.so.9", "libc10.so"),
        undefined=("ncclCommWindowRegister", "cudnnCreate"),
    ),
    "libtorch.so": Elf(needed=("libtorch_cuda.so",)),
    "libtorch_python.so": Elf(needed=("libtorch.so", "libcudart.so.12")),
    "libcaffe2_nvrtc.so": Elf(needed=("libnvrtc.so.12", "libcuda.so.1")),
}
NVIDIA = {
    "nvidia-cuda-runtime-cu12": ("12.8.90", "cuda_runtime", {"libcudart.so.12": Elf()}),
    "nvidia-cuda-nvrtc-cu12": ("12.8.93", "cuda_nvrtc", {"libnvrtc.so.12": Elf()}),
    "nvidia-cusparse-cu12": (
        "12.5.8.93",
        "cusparse",
        {
            "libcusparse.so.12": Elf(
                needed=("libnvJitLink.so.12",),
                runpath="$ORIGIN/../../nvjitlink/lib",
                undefined=("__nvJitLinkComplete_12_8",),
            )
        },
    ),
    "nvidia-nvjitlink-cu12": (
        "12.8.93",
        "nvjitlink",
        {"libnvJitLink.so.12": Elf(defines=("__nvJitLinkComplete_12_8", "nvJitLinkVersion"))},
    ),
    "nvidia-nccl-cu12": (
        "2.27.5",
        "nccl",
        {"libnccl.so.2": Elf(defines=("ncclCommWindowRegister", "ncclAllReduce"))},
    ),
    "nvidia-cudnn-cu12": (
        "9.10.2.21",
        "cudnn",
        {
            "libcudnn.so.9": Elf(runpath="$ORIGIN", defines=("cudnnCreate",)),
            **{f"libcudnn_{part}.so.9": Elf(runpath="$ORIGIN") for part in PARTS},
        },
    ),
}


@dataclass
class Machine:
    """What a check is run on.

    Args:
        root: Stands for `/`.
        environment: Lies outside of it, as fault cases have it.
        variables: Environment variables.
        nvidia: Devices and driver.
    """

    root: Path
    environment: Environment
    variables: dict[str, str] = field(default_factory=dict)
    nvidia: NvidiaFact = field(
        default_factory=lambda: NvidiaFact(
            num_devices=1,
            driver=DRIVER,
            gpus=(Gpu(index=0, name="NVIDIA H200", capability="9.0", memory_bytes=1 << 37),),
        )
    )

    @property
    def site(self) -> Path:
        return self.environment.site

    def put(self, path: str, spec: Elf | None = None) -> str:
        """Write a shared object below the root; return its path on the machine."""
        name = path.rpartition("/")[2]
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_bytes(build(named(name, spec or Elf())))
        return f"/{path.lstrip('/')}"

    def link(self, path: str, target: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).unlink(missing_ok=True)
        (self.root / path).symlink_to(target)

    def config(self, name: str, *folders: str) -> None:
        path = self.root / f"etc/ld.so.conf.d/{name}.conf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*folders, ""]))

    def install(
        self, name: str, version: str, files: dict[str, Elf], requires: tuple[str, ...] = ()
    ) -> None:
        contents = {
            path: build(named(path.rpartition("/")[2], spec)) for path, spec in files.items()
        }
        self.environment.install(name, version, contents, requires)

    def facts(self) -> FactSet:
        host = HostFact(
            machine="x86_64", kernel="6.1", glibc="2.36", shm_bytes=None, disk_free_bytes=None
        )
        given = FactSet([host, self.nvidia, VariablesFact(values=tuple(self.variables.items()))])
        place = Place(prefix=self.environment.prefix, root=self.root, given=given)
        return gather(place, PolicyFact())

    def loader(self) -> LoaderFact:
        return self.facts().need(LoaderFact)

    def problems(self) -> list[tuple[str, Problem]]:
        """Return the findings that are more than a note."""
        return [
            (finding.check, finding.outcome)
            for finding in judge(self.facts()).findings
            if isinstance(finding.outcome, Problem)
            and finding.outcome.severity is not Severity.INFO
        ]


def named(name: str, spec: Elf) -> Elf:
    """Return an object whose SONAME is its file's name, if it is a library without one."""
    is_plain = name.startswith("lib") and not spec.soname
    return replace(spec, soname=name) if is_plain else spec


def make_machine(folder: Path) -> Machine:
    """Make a healthy machine."""
    machine = Machine(folder / "root", make_environment(folder / "env"))
    install_torch(machine)
    for name in NVIDIA:
        install_nvidia(machine, name)
    machine.put(f"{SYSTEM}/libc.so.6", Elf(versions_defined=("GLIBC_2.2.5", "GLIBC_2.28")))
    machine.put(f"{SYSTEM}/libstdc++.so.6.0.30", Elf(soname="libstdc++.so.6"))
    machine.link(f"{SYSTEM}/libstdc++.so.6", "libstdc++.so.6.0.30")
    put_driver(machine, SYSTEM, DRIVER)
    return machine


def put_driver(machine: Machine, folder: str, version: str) -> None:
    machine.put(f"{folder}/libcuda.so.{version}", Elf(soname="libcuda.so.1"))
    machine.link(f"{folder}/libcuda.so.1", f"libcuda.so.{version}")


def install_torch(machine: Machine, init: str = "") -> None:
    def library(name: str, spec: Elf) -> bytes:
        return build(named(name, replace(spec, rpath=f"{RPATH}:$ORIGIN")))

    version = b"__version__ = '2.9.1+cu128'\ncuda: str = '12.8'\nhip = None\n"
    files = {f"torch/lib/{name}": library(name, spec) for name, spec in TORCH.items()}
    files["torch/_C.cpython-311-x86_64-linux-gnu.so"] = build(
        Elf(needed=("libtorch_python.so",), rpath=f"{RPATH}:$ORIGIN/lib")
    )
    files |= {"torch/__init__.py": init.encode(), "torch/version.py": version}
    requires = [f"{name}=={version}" for name, (version, _, _) in NVIDIA.items()]
    machine.environment.install("torch", "2.9.1", files, requires)


def install_nvidia(machine: Machine, name: str) -> None:
    version, part, libraries = NVIDIA[name]
    files = {f"nvidia/{part}/lib/{library}": spec for library, spec in libraries.items()}
    machine.install(name, version, files)
