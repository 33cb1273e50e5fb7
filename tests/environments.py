"""Small Python environments on disk, made of real files, for probes and checks to read."""

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"
CUDNN_PARTS = tuple(
    f"nvidia/cudnn/lib/libcudnn_{part}.so.9"
    for part in (
        "adv",
        "cnn",
        "engines_precompiled",
        "engines_runtime_compiled",
        "graph",
        "heuristic",
        "ops",
    )
)
NCCL = "nvidia/nccl/lib/libnccl.so.2"


def elf(soname: str, *, machine: int = 62, arch: str = "") -> bytes:
    """Return a minimal 64-bit shared object: headers, one segment, a dynamic section.

    With `arch`, a section `.rodata` holds it as libtorch_python.so holds its architecture list.
    """
    strings = b"\0" + soname.encode() + b"\0"
    string_offset = 64 + 2 * 56
    dynamic_offset = string_offset + len(strings)
    entries = [(5, string_offset), (14, 1), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in entries)
    rodata_offset = dynamic_offset + len(dynamic)
    rodata = b"\0pad\0" + arch.encode() + b"\0" if arch else b""
    names_offset = rodata_offset + len(rodata)
    names = b"\0.rodata\0.shstrtab\0"
    sections_offset = names_offset + len(names)
    sections = [(0, 0, 0), (1, rodata_offset, len(rodata)), (9, names_offset, len(names))]
    size = sections_offset + 64 * len(sections)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQ", 3, machine, 1, 0, 64, sections_offset)
    header += struct.pack("<IHHHHHH", 0, 64, 56, 2, 64, len(sections), 2)
    programs = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    programs += struct.pack(
        "<IIQQQQQQ", 2, 6, dynamic_offset, dynamic_offset, 0, len(dynamic), len(dynamic), 8
    )
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, length, 0, 0, 1, 0)
        for name, offset, length in sections
    )
    return header + programs + strings + dynamic + rodata + names + table


@dataclass(frozen=True)
class Environment:
    """A venv-like folder that packages can be written into."""

    prefix: Path

    @property
    def site(self) -> Path:
        return self.prefix / "lib/python3.11/site-packages"

    def install(
        self,
        name: str,
        version: str,
        files: Mapping[str, bytes] | None = None,
        requires: Sequence[str] = (),
    ) -> Path:
        """Write files, METADATA and RECORD as an installer would; return the dist-info folder."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        headers = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
        headers += [f"Requires-Dist: {line}" for line in requires]
        metadata = ("\n".join(headers) + "\n\nlong text\n").encode()
        contents = {
            **(files or {}),
            f"{info.name}/METADATA": metadata,
            f"{info.name}/INSTALLER": b"uv",
        }
        for path, content in contents.items():
            target = self.site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        rows = [f"{path},{_digest(content)},{len(content)}" for path, content in contents.items()]
        (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")
        return info


def make_environment(prefix: Path) -> Environment:
    """Make an empty environment of Python 3.11."""
    environment = Environment(prefix)
    environment.site.mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.11.7\n")
    (prefix / "bin").mkdir()
    (prefix / "bin/python").write_bytes(elf("python"))
    return environment


def make_cuda_environment(prefix: Path) -> Environment:
    """Make a healthy environment with a torch for CUDA 12.8 and two of its NVIDIA packages."""
    environment = make_environment(prefix)
    version = b"__version__ = '2.10.0+cu128'\ncuda: str = '12.8'\nhip = None\n"
    arch = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
    environment.install(
        "torch",
        "2.10.0",
        {
            "torch/__init__.py": b"raise SystemExit('imported')\n",
            "torch/version.py": version,
            "torch/lib/libtorch_cuda.so": elf("libtorch_cuda.so"),
            "torch/lib/libtorch_python.so": elf("libtorch_python.so", arch=arch),
            "torch/bin/torch_shm_manager": b"#!/bin/sh\n",
        },
        [
            "filelock",
            'nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux"',
            'nvidia-nccl-cu12==2.27.5; platform_system == "Linux"',
            'triton==3.6.0; platform_system == "Linux"',
            'optree>=0.13.0; extra == "optree"',
        ],
    )
    cudnn = {path: elf(path.rpartition("/")[2]) for path in (CUDNN, *CUDNN_PARTS)}
    environment.install("nvidia-cudnn-cu12", "9.10.2.21", cudnn)
    environment.install("nvidia-nccl-cu12", "2.27.5", {NCCL: elf("libnccl.so.2")})
    triton = {
        "triton/__init__.py": b"",
        "triton/_C/libtriton.so": elf("libtriton.so"),
        "triton/backends/nvidia/bin/ptxas": b"#!/bin/sh\n",
    }
    environment.install("triton", "3.6.0", triton)
    for path in environment.site.glob("**/bin/*"):
        path.chmod(0o755)
    return environment


def _digest(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
