"""Which profile fits a machine, and why."""

from __future__ import annotations

import subprocess
import sys

import pytest

from envdoctor import automatic, profile
from envdoctor.facts import NvidiaFact
from tests.machines import gpu, nvidia
from tests.workbench import ROOT

PROFILES = [profile.load_profile(name) for name in profile.known_names()]

MACHINES = [
    pytest.param(NvidiaFact(num_devices=0), "cpu", "no NVIDIA GPU", id="no-gpu"),
    pytest.param(NvidiaFact(num_devices=2), "cpu", "2 NVIDIA GPUs are here, but no driver",
                 id="no-driver"),
    pytest.param(nvidia(), "cu128", "driver 580.95.05 and NVIDIA H200 run", id="the-one-tried"),
    pytest.param(nvidia(driver="525.60.13"), "cu128", "525.60.13 and", id="exactly-the-floor"),
    pytest.param(nvidia(driver="525.60.12"), "cpu", "older than 525.60.13", id="one-below"),
    pytest.param(nvidia(gpu(capability="6.1", name="P40")), "cu126",
                 "not cu130: GPU 0 (P40) has capability 6.1", id="pascal"),
    pytest.param(nvidia(gpu(), gpu(1, capability="6.1")), "cu126", "GPU 1",
                 id="the-oldest-decides"),
    pytest.param(nvidia(gpu(capability="3.5")), "cpu", "no CUDA profile runs here", id="kepler"),
    pytest.param(NvidiaFact(num_devices=1, driver="580.95.05"), "cu128", "GPUs unknown",
                 id="gpus-not-listed"),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "expected", "reason"), MACHINES)
def test_profile_is_the_first_that_driver_and_all_gpus_run(
    machine: NvidiaFact, expected: str, reason: str
) -> None:
    choice = automatic.pick(machine, PROFILES)
    assert choice.profile == expected
    assert reason in "\n".join(choice.reasons)
    assert choice.reasons[-1].startswith(f"{expected}: ")


@pytest.mark.parametrize(
    ("driver", "expected"), [("580.65.06", "cu132"), ("580.65.05", "cu126"), ("470.1", "cpu")]
)
def test_newest_cuda_comes_next(driver: str, expected: str) -> None:
    others = [one for one in PROFILES if one.name != "cu128"]
    choice = automatic.pick(nvidia(driver=driver), others)
    assert choice.profile == expected
    if expected != "cu132":
        assert f"not cu132: driver {driver} is older than 580.65.06" in choice.reasons


def test_command_line_says_why() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "envdoctor", "profiles", "show", "auto"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    reasons = [line for line in done.stderr.splitlines() if line.startswith("auto: ")]
    name = reasons[-1].removeprefix("auto: ").partition(":")[0]
    assert f'name = "{name}"' in done.stdout
