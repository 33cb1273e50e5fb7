"""Read NVIDIA devices from sysfs and /dev, and the driver through NVML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from envdoctor.facts import FactSet, Gpu, NvidiaFact
from envdoctor.probes.files import UnreadableError, list_folder, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.probes.subject import Subject

_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"


def read_nvidia(subject: Subject, facts: FactSet) -> NvidiaFact:
    """Count devices without the driver; ask NVML only where a device or a driver is seen."""
    del facts
    num_devices = count_devices(subject.root)
    driver = _kernel_driver(subject.root)
    if not num_devices and driver is None:
        return NvidiaFact(num_devices=0)
    return _ask_nvml(num_devices, driver)


def count_devices(root: Path) -> int:
    """Return how many NVIDIA GPUs the PCI bus or /dev shows, with or without a driver."""
    return max(_count_pci(root), _count_nodes(root))


def _count_pci(root: Path) -> int:
    folder = root / "sys/bus/pci/devices"
    return sum(
        _first_line(folder / name / "vendor") == _VENDOR
        and _first_line(folder / name / "class").startswith(_DISPLAY_CLASS)
        for name in list_folder(folder)
    )


def _count_nodes(root: Path) -> int:
    return sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in list_folder(root / "dev"))


def _kernel_driver(root: Path) -> str | None:
    """Return the kernel module's version, which is there even when NVML is not."""
    for path in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        if match := re.search(r"\b\d{3}\.\d+(\.\d+)?\b", _first_line(root / path)):
            return match[0]
    return None


def _first_line(path: Path) -> str:
    try:
        return (read_text(path) or "").partition("\n")[0].strip()
    except UnreadableError:
        return ""


def _ask_nvml(num_devices: int, driver: str | None) -> NvidiaFact:
    import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415  40 ms that a machine without a GPU need not pay

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvidiaFact(num_devices=num_devices, driver=driver, error=str(error))
    try:
        gpus = tuple(_read_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        return NvidiaFact(
            num_devices=max(num_devices, len(gpus)),
            driver=pynvml.nvmlSystemGetDriverVersion(),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
            gpus=gpus,
        )
    except pynvml.NVMLError as error:
        return NvidiaFact(num_devices=num_devices, driver=driver, error=str(error))
    finally:
        pynvml.nvmlShutdown()


def _read_gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index=index,
        name=nvml.nvmlDeviceGetName(handle),
        capability=f"{major}.{minor}",
        memory_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).total,
    )
