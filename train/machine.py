"""The machine a run happens on: its device, versions, clock and memory."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch

from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORTED_PACKAGES = ("torch", "transformers", "safetensors", "gguf", "accelerate", "numpy")


class Stopwatch:
    """Wall-clock and processor seconds of named phases.

    Attributes:
        wall_seconds: Phase to its wall-clock time.
        cpu_seconds: Phase to the processor time of all threads; on a shared machine the steadier.
    """

    def __init__(self) -> None:
        self.wall_seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside, also when it fails; the same name again adds up."""
        wall, cpu = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            wall_seconds, cpu_seconds = time.monotonic() - wall, time.process_time() - cpu
            self.wall_seconds[name] = self.wall_seconds.get(name, 0.0) + wall_seconds
            self.cpu_seconds[name] = self.cpu_seconds.get(name, 0.0) + cpu_seconds


def choose_device(name: str) -> torch.device:
    """Return the device that `train.device` means here.

    Raises:
        ConfigError: CUDA is asked for and torch sees none.
    """
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise ConfigError(["train.device: found 'cuda', but torch sees no CUDA device here"])
    return torch.device("cuda" if has_cuda and name != "cpu" else "cpu")


def device_name(device: torch.device) -> str:
    """Return what a person calls the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {platform.machine()}, {torch.get_num_threads()} threads"


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory this process held: tensors on a GPU, resident pages on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts KiB


def package_versions() -> dict[str, str]:
    """Return the versions of what computes; packages that are not installed are left out."""
    versions = {"python": platform.python_version()}
    for name in REPORTED_PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def machine_summary(device: torch.device) -> dict[str, Any]:
    """Return the machine's part of a run's summary."""
    return {
        "device": device_name(device),
        "num_cpus": len(os.sched_getaffinity(0)),
        "cuda": torch.version.cuda,
        "versions": package_versions(),
        "peak_memory_bytes": peak_memory_bytes(device),
    }
