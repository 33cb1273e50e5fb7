"""Machines that were recorded with `envdoctor facts --redact` are judged as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import PolicyFact
from envdoctor.facts.snapshot import load
from envdoctor.runner import run
from envdoctor.verdict import Ok, Problem, Severity

FOLDER = Path(__file__).parent / "facts"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*-ok.json")), ids=lambda path: path.stem)
def test_healthy_machine_is_quiet(path: Path) -> None:
    findings = run(BUILTIN_CHECKS, load(path).having(PolicyFact()))
    found = [item.outcome for item in findings if isinstance(item.outcome, Problem)]
    assert [problem for problem in found if problem.severity is not Severity.INFO] == []


@pytest.mark.parametrize(
    "check",
    [
        "torch-import-fails",
        "torch-sees-no-gpu",
        "cudnn-refused-by-torch",
        "library-loaded-from-elsewhere",
        "gpu-computation-fails",
        "gpu-all-reduce-fails",
        "compiled-attention-fails",
        "compiled-attention-not-fused",
    ],
)
def test_programs_ran_right_on_an_h200(check: str) -> None:
    """What `envdoctor facts --probe --redact` wrote there on 2026-11-30, paths renamed."""
    findings = run(BUILTIN_CHECKS, load(FOLDER / "h200-probed-ok.json").having(PolicyFact()))
    (found,) = [item.outcome for item in findings if item.check == check]
    assert isinstance(found, Ok)


@pytest.mark.parametrize(
    "check",
    [
        "driver-library-mismatch",
        "no-nvidia-driver",
        "driver-too-old-for-cuda",
        "gpu-arch-not-in-build",
        "gpu-fabric-not-ready",
        "gpu-memory-held",
        "gpu-fault-in-kernel-log",
        "visible-device-not-found",
        "no-c-compiler",
        "python-headers-missing",
        "ptxas-too-old",
        "network-interface-not-found",
        "shared-memory-too-small",
        "container-memory-too-small",
        "glibc-too-old",
    ],
)
def test_machine_with_a_gpu_is_looked_at(check: str) -> None:
    """A check that is skipped on a whole machine would never find anything."""
    findings = run(BUILTIN_CHECKS, load(FOLDER / "h200-ok.json").having(PolicyFact()))
    (found,) = [item.outcome for item in findings if item.check == check]
    assert isinstance(found, Ok)
