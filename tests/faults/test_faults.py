"""Every fault case is found and named; every healthy one is quiet."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from tests.faults.scoring import CLASSES, forbidden_commands, is_hit, is_noise, problems

GENERATOR = Path(__file__).parent / "faultgen" / "faultgen.py"
CASES = tuple(
    line.split()[0]
    for line in subprocess.run(
        [sys.executable, GENERATOR, "--list"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
)

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="cases are built with gcc")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    subprocess.run([sys.executable, GENERATOR, "--all", folder], check=True, timeout=600)
    return folder


@pytest.fixture(scope="module")
def expectations(built: Path) -> dict[str, Any]:
    """Return what each case expects, and take it away: the doctor must not need it."""
    found = {}
    for case in CASES:
        path = built / case / "expected.json"
        found[case] = json.loads(path.read_text())
        path.unlink()
    return found


@pytest.fixture(scope="module")
def reports(built: Path, expectations: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", *(str(built / case) for case in expectations)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_case(case: str, reports: dict[str, Any], expectations: dict[str, Any]) -> None:
    report, expected = reports[case], expectations[case]
    assert "error" not in report
    found = problems(report)
    assert [item["check"] for item in report["findings"] if item["outcome"] == "crashed"] == []
    assert [item for item in found if is_noise(item, expected)] == []
    assert forbidden_commands(report, expected) == []
    if expected["severity"] != "none":
        assert [item for item in found if is_hit(item, expected)] != [], found


def test_classes_are_those_of_checks_that_exist() -> None:
    assert set(CLASSES) <= {check.id for check in BUILTIN_CHECKS}


def test_folder_that_is_no_case_does_not_hide_the_others(
    built: Path, expectations: dict[str, Any]
) -> None:
    del expectations
    healthy = built / "healthy-cpu"
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", str(built), str(healthy)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    found = json.loads(done.stdout)
    assert "error" in found[built.name]
    assert found["healthy-cpu"]["summary"]["errors"] == 0
