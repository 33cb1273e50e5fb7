from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from envdoctor.facts import FactSet, Gpu, GpuProcess, MigDevice, NvidiaFact
from envdoctor.facts.snapshot import from_data
from envdoctor.probes import nvml_child
from envdoctor.probes.nvidia import ask_nvml, read_nvidia
from envdoctor.probes.subject import Subject

if TYPE_CHECKING:
    from pathlib import Path


def read(root: Path) -> NvidiaFact:
    return read_nvidia(Subject(prefix=root, root=root), FactSet([]))


def add_pci(root: Path, address: str, vendor: str, kind: str) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def test_machine_without_devices(tmp_path: Path) -> None:
    assert read(tmp_path) == NvidiaFact(num_devices=0)


@pytest.mark.parametrize(
    ("vendor", "kind", "num_devices"),
    [
        pytest.param("0x10de", "0x030200", 1, id="3d-controller"),
        pytest.param("0x10de", "0x030000", 1, id="display"),
        pytest.param("0x10de", "0x040300", 0, id="its-audio-function"),
        pytest.param("0x1002", "0x030000", 0, id="another-vendor"),
    ],
)
def test_pci_device(tmp_path: Path, vendor: str, kind: str, num_devices: int) -> None:
    add_pci(tmp_path, "0000:01:00.0", vendor, kind)
    assert read(tmp_path).num_devices == num_devices


def test_device_node_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    assert read(tmp_path).num_devices == 2


def test_kernel_driver_is_read_when_nvml_does_not_answer(tmp_path: Path) -> None:
    folder = tmp_path / "proc/driver/nvidia"
    folder.mkdir(parents=True)
    (folder / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
    )
    fact = read(tmp_path)
    assert fact.driver == "580.65.06"
    assert fact.library is None


def test_library_version_is_that_of_the_file_behind_the_link(tmp_path: Path) -> None:
    add_driver(tmp_path, kernel="570.124.06", library="570.172.08")
    fact = read(tmp_path)
    assert (fact.driver, fact.library) == ("570.124.06", "570.172.08")
    assert fact.library_path == "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.172.08"


def test_driver_link_in_a_loop_is_no_library(tmp_path: Path) -> None:
    add_driver(tmp_path, kernel="570.124.06", library="")
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.2")
    (folder / "libnvidia-ml.so.2").symlink_to("libnvidia-ml.so.1")
    assert read(tmp_path).library is None


def add_driver(root: Path, *, kernel: str, library: str) -> None:
    proc = root / "proc/driver/nvidia"
    proc.mkdir(parents=True)
    (proc / "version").write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {kernel}  x\n")
    folder = root / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    if library:
        (folder / f"libnvidia-ml.so.{library}").touch()
        (folder / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{library}")


# A binding that answers as NVML does on a machine with one GPU in MIG mode. What this driver does
# not offer raises, as the real binding does.
BINDING = """
import ctypes
class NVMLError(Exception):
    def __init__(self, value=3):
        super().__init__("Not Supported")
        self.value = value
class c_nvmlGpuFabricInfo_t(ctypes.Structure):
    _fields_ = [("state", ctypes.c_uint)]
class Memory:
    total, used = 80, 8
class Process:
    pid, usedGpuMemory = 4711, 8
byref = ctypes.byref
def nvmlInit(): pass
def nvmlSystemGetDriverVersion(): return "580.105.08"
def nvmlSystemGetCudaDriverVersion_v2(): return 13000
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return "gpu"
def nvmlDeviceGetCudaComputeCapability(handle): return 9, 0
def nvmlDeviceGetMemoryInfo(handle): return Memory
def nvmlDeviceGetMigMode(handle): return [1, 1]
def nvmlDeviceGetName(handle): return "NVIDIA H100"
def nvmlDeviceGetUUID(handle): return "MIG-a1" if handle == "slice" else "GPU-b2"
def nvmlDeviceGetMaxMigDeviceCount(handle): return 7
def nvmlDeviceGetMigDeviceHandleByIndex(handle, index):
    if index:
        raise NVMLError
    return "slice"
def nvmlDeviceGetGpuFabricInfo(handle, info):
    ctypes.cast(info, ctypes.POINTER(ctypes.c_uint))[0] = 2
    return 0
def nvmlDeviceGetComputeRunningProcesses(handle): return [Process]
"""


def ask(folder: Path, binding: str) -> dict[str, Any]:
    (folder / "pynvml.py").write_text(binding)
    done = subprocess.run(
        [sys.executable, "-I", "-S", nvml_child.__file__, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    fields: dict[str, Any] = json.loads(done.stdout)
    return fields


def test_nvml_child_reports_slices_fabric_and_processes(tmp_path: Path) -> None:
    fields = {"num_devices": 1, **ask(tmp_path, BINDING)}
    data = {"schema_version": 1, "facts": {"nvidia": fields}}
    fact = from_data(data, source="the child").need(NvidiaFact)
    assert (fact.driver, fact.cuda) == ("580.105.08", "13.0")
    assert fact.gpus == (
        Gpu(
            index=0,
            name="NVIDIA H100",
            capability="9.0",
            memory_bytes=80,
            memory_used_bytes=8,
            uuid="GPU-b2",
            is_mig=True,
            mig_devices=(MigDevice(uuid="MIG-a1", memory_bytes=80),),
            fabric="in_progress",
            processes=(GpuProcess(pid=4711, memory_bytes=8),),
        ),
    )


@pytest.mark.parametrize(
    "lacks", ["nvmlDeviceGetUUID", "nvmlDeviceGetMigMode", "nvmlDeviceGetComputeRunningProcesses"]
)
def test_nvml_child_does_without_what_an_old_driver_lacks(tmp_path: Path, lacks: str) -> None:
    fields = ask(tmp_path, f"{BINDING}\ndef {lacks}(handle): raise NVMLError(13)\n")
    assert fields["gpus"][0]["name"] == "NVIDIA H100"


def test_nvml_child_tells_the_number_of_a_refusal(tmp_path: Path) -> None:
    fields = ask(tmp_path, f"{BINDING}\ndef nvmlInit(): raise NVMLError(18)\n")
    assert (fields["error"], fields["error_code"]) == ("Not Supported", 18)


def test_nvml_that_cannot_be_asked_leaves_an_error_and_the_kernel_module(tmp_path: Path) -> None:
    add_driver(tmp_path, kernel="580.65.06", library="")
    subject = Subject(prefix=tmp_path, variables={"LD_LIBRARY_PATH": str(tmp_path)})
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    fact = ask_nvml(subject, NvidiaFact(num_devices=1, driver="580.65.06"))
    assert fact.driver == "580.65.06"
    assert fact.error
