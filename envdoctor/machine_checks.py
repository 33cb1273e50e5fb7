"""Checks that speak of a machine and not of an environment on it."""

from __future__ import annotations

OF_THE_MACHINE = frozenset(
    {
        "cpu-torch-on-gpu-machine",
        "cuda-does-not-start",
        "cuda-torch-without-gpu",
        "driver-library-mismatch",
        "driver-too-old-for-cuda",
        "gpu-arch-not-in-build",
        "gpu-fabric-not-ready",
        "gpu-fault-in-kernel-log",
        "gpu-memory-held",
        "libcuda-is-stub",
        "libcuda-missing",
        "libcuda-shadowed",
        "mig-mode-without-slices",
        "no-nvidia-driver",
        "ptxas-too-old",
        "visible-device-not-found",
        "visible-devices-by-uuid",
        "cache-folder-not-executable",
        "cache-folder-not-writable",
        "cache-folder-open-to-all",
        "cache-path-with-space",
        "container-memory-too-small",
        "damaged-cache-entry",
        "debugging-variable-left",
        "locked-memory-limit",
        "nccl-plugin-not-found",
        "network-interface-not-found",
        "no-c-compiler",
        "rdma-device-not-found",
        "shared-memory-too-small",
        "stale-compile-cache",
        "stray-cache-left",
        "user-without-name",
    }
)
"""Ids of these checks. What they find stands in the report, and does not keep an environment from
being built or adopted: it may be meant for another machine, or for this one after a repair."""
