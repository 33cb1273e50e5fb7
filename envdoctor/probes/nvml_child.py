"""Ask NVML about the GPUs, in a process of its own: a driver that hangs must not hang the doctor.

Run as `python -I -S nvml_child.py FOLDER`, where FOLDER holds `pynvml.py`. It imports nothing else
of ours, and writes a snapshot that holds one fact.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
"""By number, as `nvml.h` has them."""


def read(nvml: Any) -> dict[str, Any]:
    """Return the fields of a `NvidiaFact` that NVML knows."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"error": str(error), "error_code": error.value, "library_path": loaded_library()}
    try:
        cuda = optional(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2, 0)
        count = nvml.nvmlDeviceGetCount()
        return {
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
            "gpus": [read_gpu(nvml, index) for index in range(count)],
            "library_path": loaded_library(),
        }
    except nvml.NVMLError as error:
        return {"error": str(error), "error_code": error.value, "library_path": loaded_library()}


def read_gpu(nvml: Any, index: int) -> dict[str, Any]:
    """Return the fields of a `Gpu`; only its name and capability are indispensable."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = optional(nvml, nvml.nvmlDeviceGetMemoryInfo, None, handle)
    mig_mode = optional(nvml, nvml.nvmlDeviceGetMigMode, [0, 0], handle)
    return {
        "index": index,
        "name": nvml.nvmlDeviceGetName(handle),
        "capability": f"{major}.{minor}",
        "memory_bytes": memory.total if memory else 0,
        "memory_used_bytes": memory.used if memory else None,
        "uuid": optional(nvml, nvml.nvmlDeviceGetUUID, "", handle),
        "is_mig": bool(mig_mode[0]),
        "mig_devices": read_slices(nvml, handle) if mig_mode[0] else [],
        "fabric": read_fabric(nvml, handle),
        "processes": [
            {"pid": process.pid, "memory_bytes": process.usedGpuMemory}
            for process in optional(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, [], handle)
        ],
    }


def read_slices(nvml: Any, handle: Any) -> list[dict[str, Any]] | None:
    """Return the MIG devices of a GPU; None if NVML does not list them."""
    count = optional(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, None, handle)
    if count is None:
        return None
    found = []
    for index in range(count):
        device = optional(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, None, handle, index)
        if device is not None:
            memory = optional(nvml, nvml.nvmlDeviceGetMemoryInfo, None, device)
            found.append(
                {
                    "uuid": optional(nvml, nvml.nvmlDeviceGetUUID, "", device),
                    "memory_bytes": memory.total if memory else None,
                }
            )
    return found


def read_fabric(nvml: Any, handle: Any) -> str:
    """Return the state of a GPU's NVLink fabric; empty if this NVML does not tell it."""
    if not hasattr(nvml, "c_nvmlGpuFabricInfo_t"):
        return ""
    info = nvml.c_nvmlGpuFabricInfo_t()
    # the structure is passed by reference, as the binding of this one call leaves to its caller
    reference = nvml.byref(info)
    if optional(nvml, nvml.nvmlDeviceGetGpuFabricInfo, None, handle, reference) is None:
        return ""
    return _FABRIC_STATES[info.state] if info.state < len(_FABRIC_STATES) else ""


def optional(nvml: Any, function: Callable[..., Any], default: Any, *arguments: Any) -> Any:
    """Return what NVML answers, or the default where this driver or GPU does not offer it."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return default


def loaded_library() -> str | None:
    """Return the file that the loader took for NVML."""
    for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
        path = line.partition("/")[2]
        if "libnvidia-ml.so" in path:
            return f"/{path}"
    return None


def main() -> None:
    """Write what NVML says to stdout."""
    sys.path.append(sys.argv[1])
    import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415  its folder is an argument

    json.dump(read(pynvml), sys.stdout)


if __name__ == "__main__":
    main()
