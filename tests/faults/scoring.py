"""Score a report against what a fault case expects."""

from __future__ import annotations

import re
from typing import Any

CLASSES: dict[str, frozenset[str]] = {
    check: frozenset(classes.split())
    for check, classes in {
        "cache-folder-not-writable": "cache-not-writable cache-permission compile-cache-permission",
        "cpu-torch-on-gpu-machine": "cpu-wheel-on-gpu-host torch-cpu-build wrong-torch-variant",
        "cudnn-from-two-places": "cudnn-mixed-versions cudnn-sublibrary-from-system "
        "system-cudnn-shadow cudnn-incomplete",
        "driver-library-mismatch": "nvml-driver-library-mismatch driver-mismatch",
        "driver-too-old-for-cuda": "driver-too-old insufficient-driver",
        "duplicate-distribution": "duplicate-dist-info invalid-dist-info leftover-dist-info",
        "engines-pin-different-torch": "conflicting-pins engine-conflict torch-pin-mismatch",
        "extension-for-another-torch": "extension-abi-mismatch undefined-symbol flash-attn-abi",
        "flashinfer-versions-differ": "flashinfer-version-mismatch guard-bypassed",
        "fx-tracing-race": "dynamo-thread-race fx-trace-in-threads compile-from-threads",
        "lib-lib64-split": "lib-lib64-split purelib-platlib-split rpath-target-missing",
        "libcuda-missing": "libcuda-missing driver-capabilities container-gpu-capabilities",
        "libcuda-shadowed": "cuda-compat-shadow error-803 driver-mismatch compat-libcuda",
        "library-shadowed": "ld-library-path-shadow nvjitlink-shadowed system-cuda-shadow",
        "libstdcxx-too-old": "libstdcxx-too-old conda-libstdcxx glibcxx-missing missing-symlink",
        "namespace-package-closed": "namespace-shadowed regular-package-shadows-namespace "
        "pythonpath-leak",
        "network-interface-not-found": "nccl-env-stale nccl-ifname-missing "
        "nccl-interface-not-found",
        "package-files-damaged": "record-file-missing missing-shared-object cu12-cu13-collision "
        "dist-payload-missing",
        "package-version-not-pinned": "triton-version-mismatch broken-requirement "
        "torch-triton-mismatch",
        "ptxas-too-old": "ptxas-too-old ptxas-arch-unsupported arch-unsupported-by-triton",
        "python-headers-missing": "python-headers-missing toolchain-incomplete",
        "shared-memory-too-small": "shm-too-small dev-shm-small",
        "stale-compile-cache": "stale-compile-cache stale-triton-cache cache-version-mismatch",
        "two-cuda-runtimes": "mixed-cuda-majors two-cudart cu12-cu13-mixed orphan-cu12",
        "visible-devices-by-uuid": "cuda-visible-devices-uuid mig-uuid cvd-non-integer",
    }.items()
}
"""Check ids of ours, and the free-text classes of the cases that they stand for."""


def problems(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in report["findings"] if finding["outcome"] == "problem"]


def is_hit(finding: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Tell whether a finding names the culprit, the class, the severity and the remedy."""
    names = [expected["culprit"], *expected.get("culprit_any_of", ())]
    severities = expected.get("severity_any_of", [expected["severity"]])
    return (
        finding["severity"] in severities
        and any(_plain(name) in _plain(finding["culprit"]) for name in names)
        and not CLASSES.get(finding["check"], frozenset()).isdisjoint(expected["codes_any_of"])
        and finding["remedy"]["kind"] == expected["remedy_kind"]
    )


def is_noise(finding: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Tell whether a finding is worse than the case allows and is not about its fault."""
    if expected["severity"] == "none":
        return finding["severity"] in ("error", "warning")
    return finding["severity"] == "error" and not is_hit(finding, expected)


def forbidden_commands(report: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    return [
        command
        for finding in problems(report)
        for command in finding["remedy"]["commands"]
        if any(re.search(pattern, command) for pattern in expected.get("must_not", ()))
    ]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
