from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from envdoctor.facts import FactSet, NvidiaFact
from envdoctor.probes.nvidia import read_nvidia
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
