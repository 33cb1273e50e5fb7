"""Import torch, start CUDA, and tell what the process has loaded from where."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any


def step(text: str) -> None:
    """Say what comes next."""
    sys.stderr.write(f"probe-step: {text}\n")
    sys.stderr.flush()


def loaded_libraries() -> list[str]:
    """Return the shared objects mapped into this process, symbolic links resolved by the kernel."""
    found = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123  PEP 383 for names that are no UTF-8
        for line in stream:
            fields = line.rstrip("\n").split(maxsplit=5)
            if fields[-1].startswith("/") and ".so" in fields[-1]:
                found.add(fields[-1])
    return sorted(found)


def start_driver() -> dict[str, Any]:
    """Return what the driver's own library answers when it is started."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    name = ctypes.c_char_p()
    code = driver.cuInit(0)
    driver.cuGetErrorName(code, ctypes.byref(name))
    count = ctypes.c_int(0)
    if code == 0:
        driver.cuDeviceGetCount(ctypes.byref(count))
    return {
        "driver_code": code,
        "driver_name": (name.value or b"").decode(),
        "driver_devices": count.value,
    }


def start_runtime(libraries: list[str]) -> dict[str, Any]:
    """Return what the first call into the CUDA runtime that torch has loaded answers."""
    path = next((item for item in libraries if "/libcudart.so" in item), None)
    if path is None:
        return {}
    runtime = ctypes.CDLL(path)
    runtime.cudaGetErrorName.restype = ctypes.c_char_p
    count = ctypes.c_int(0)
    code = runtime.cudaGetDeviceCount(ctypes.byref(count))
    name = runtime.cudaGetErrorName(code) or b""
    return {"runtime_code": code, "runtime_name": name.decode()}


def versions(torch: Any) -> dict[str, Any]:
    """Return what torch says of its libraries and of the GPUs that it sees."""
    found: dict[str, Any] = {"torch": str(torch.__version__), "cuda": torch.version.cuda}
    step("asking cuDNN for its version")
    try:
        found["cudnn"] = str(torch.backends.cudnn.version() or "")
    except RuntimeError as error:
        found["cudnn_error"] = str(error)
    if not torch.version.cuda:
        return found
    step("starting CUDA")
    found["cuda_available"] = torch.cuda.is_available()
    found["num_devices"] = torch.cuda.device_count()
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        found["cuda_error"] = str(error)
    if torch.cuda.is_available():
        found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return found


def main() -> None:
    """Write the answer."""
    step("importing torch")
    start = time.perf_counter()
    import torch  # noqa: PLC0415  the import itself is what is timed

    seconds = time.perf_counter() - start
    result = {"import_seconds": round(seconds, 3), **versions(torch)}
    step("starting the driver's library")
    result |= {**start_driver(), **start_runtime(loaded_libraries())}
    result["loaded"] = loaded_libraries()
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
