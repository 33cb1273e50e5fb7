"""Faults injected into a real CUDA environment: named, repaired, clean afterwards.

ENVDOCTOR_TEST_BASE names an environment with torch 2.11.0 to break copies of; without it one
is installed, which takes 5 GB and some minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.inject import FAULTS, Fault, Patient, copy

ROOT = Path(__file__).parents[2]
TORCH = "torch==2.11.0"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("ENVDOCTOR_TEST_BASE"):
        return Path(given)
    prefix = tmp_path_factory.mktemp("base") / "env"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, prefix], check=True)
    python = str(prefix / "bin/python")
    subprocess.run(
        [*uv, "pip", "install", "-q", "--link-mode", "copy", "--python", python, TORCH, "numpy"],
        check=True,
    )
    return prefix


@pytest.fixture
def patient(base: Path, request: pytest.FixtureRequest) -> Any:
    # Beside the original: hard links do not reach over file systems.
    target = base.parent / f"{base.name}-{request.node.callspec.params['name']}"
    shutil.rmtree(target, ignore_errors=True)
    yield copy(base, target)
    shutil.rmtree(target, ignore_errors=True)


def envdoctor(
    command: str, fault: Fault, patient: Patient, *arguments: str
) -> subprocess.CompletedProcess[str]:
    told = {name: value.format(env=patient.prefix) for name, value in fault.variables.items()}
    return subprocess.run(
        [sys.executable, "-m", "envdoctor", command, "--prefix", patient.prefix, *arguments],
        env={**os.environ, **told},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )


def findings(fault: Fault, patient: Patient, *arguments: str) -> list[dict[str, Any]]:
    done = envdoctor("check", fault, patient, "--no-gpu", "--format", "json", *arguments)
    assert done.returncode in {0, 1}, done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["crashed"] == 0
    return [item for item in report["findings"] if item["severity"] in {"error", "warning"}]


def names_it(fault: Fault, found: dict[str, Any]) -> bool:
    told = f"{found['culprit']} {found['message']} {found['evidence']}"
    return any(re.search(pattern, told, re.IGNORECASE) for pattern in fault.culprits)


def has_rpath_to_cudnn(patient: Patient) -> bool:
    (info,) = patient.site.glob("nvidia_cudnn_cu1?-*.dist-info")
    version = re.findall(r"\d+", info.name.partition("-")[2])
    return [int(part) for part in version[:2]] >= [9, 24]


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named_and_repaired(name: str, patient: Patient) -> None:
    fault = FAULTS[name]
    if name == "ldpath-old-cudnn" and not has_rpath_to_cudnn(patient):
        pytest.skip("before cuDNN 9.24 the shadow wins: no control")
    fault.break_it(patient)
    found = findings(fault, patient, *(["--deep"] if fault.deep else []))
    if fault.is_control:
        assert found == []
        return
    assert any(names_it(fault, item) for item in found), found
    assert [
        item for item in found if item["severity"] == "error" and not names_it(fault, item)
    ] == []
    if fault.repairable:
        done = envdoctor("fix", fault, patient, "--yes", *(["--deep"] if fault.deep else []))
        assert done.returncode == 0, done.stdout + done.stderr
        assert findings(fault, patient, "--deep") == []
