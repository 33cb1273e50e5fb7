from __future__ import annotations

import pytest

from envdoctor.facts import ContainerFact, Fact, FoundLibrary, LoaderFact, NvidiaFact
from envdoctor.verdict import Ok, Severity, Skipped
from tests.machines import gpu, nvidia, outcome, problem, severity, torch

DOCKER = ContainerFact(kind="docker")


def broken(**more: object) -> NvidiaFact:
    fields = {"num_devices": 8, "driver": "570.124.06", "library": "570.172.08"}
    return NvidiaFact(**{**fields, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        pytest.param(broken(error="mismatch", error_code=18), Severity.ERROR, id="nvml-says-18"),
        pytest.param(broken(), Severity.ERROR, id="nvml-was-not-asked"),
        pytest.param(
            broken(error="Driver/library version mismatch"), Severity.ERROR, id="in-words"
        ),
        pytest.param(broken(error="lost", error_code=15), Ok, id="nvml-fails-for-another-reason"),
        pytest.param(nvidia(library="570.1.1"), Ok, id="nvml-answers-so-the-file-is-not-in-use"),
        pytest.param(broken(library="570.124.06"), Ok, id="equal"),
        pytest.param(broken(library=None), Ok, id="no-library"),
        pytest.param(NvidiaFact(num_devices=0), Ok, id="no-device"),
    ],
)
def test_driver_library_mismatch(fact: NvidiaFact, expected: object) -> None:
    assert severity("driver-library-mismatch", fact) == expected


def test_mismatch_names_both_versions_and_asks_for_a_reboot() -> None:
    found = problem("driver-library-mismatch", broken(error_code=18, error="mismatch"))
    assert "570.124.06" in found.message
    assert "570.172.08" in found.message
    assert (found.remedy.kind, found.owner) == ("reboot", "admin")


def test_container_with_the_older_libraries_is_created_anew() -> None:
    stale = broken(driver="570.172.08", library="570.124.06", error="mismatch", error_code=18)
    assert problem("driver-library-mismatch", stale, DOCKER).remedy.kind == "container-option"
    assert problem("driver-library-mismatch", broken(), DOCKER).remedy.kind == "reboot"


def test_mismatch_hides_what_follows_from_it() -> None:
    assert severity("no-nvidia-driver", broken(error="x", error_code=18)) is Skipped
    assert severity("driver-too-old-for-cuda", broken(error="x", error_code=18)) is Skipped


@pytest.mark.parametrize(
    ("code", "container", "kind"),
    [
        pytest.param(9, ContainerFact(), "install-system-package", id="module-not-loaded"),
        pytest.param(15, ContainerFact(), "reboot", id="gpu-lost"),
        pytest.param(999, DOCKER, "container-option", id="container-lost-its-devices"),
        pytest.param(12, DOCKER, "container-option", id="container-without-libraries"),
        pytest.param(15, DOCKER, "reboot", id="gpu-lost-seen-from-a-container"),
    ],
)
def test_no_nvidia_driver_says_who_can_cure_it(
    code: int, container: ContainerFact, kind: str
) -> None:
    fact = NvidiaFact(num_devices=1, driver="580.1.1", error="no", error_code=code)
    assert problem("no-nvidia-driver", fact, container).remedy.kind == kind


def test_driver_of_this_machine_is_fine() -> None:
    assert isinstance(outcome("no-nvidia-driver"), Ok)
    assert isinstance(outcome("driver-too-old-for-cuda"), Ok)


def test_old_driver_states_what_it_serves() -> None:
    old = nvidia(driver="470.82.01", cuda="11.4")
    assert "11.4" in problem("driver-too-old-for-cuda", old).message


H100 = nvidia(gpu(name="NVIDIA H100 80GB HBM3"), driver="550.90.07", cuda="12.4")
GEFORCE = nvidia(gpu(name="NVIDIA GeForce RTX 4090"), driver="550.90.07", cuda="12.4")
CU130 = torch("2.11.0+cu130", "13.0")


def libcuda(folder: str, version: str) -> LoaderFact:
    path = f"{folder}/libcuda.so.1"
    found = FoundLibrary(name="libcuda.so.1", path=path, target=f"libcuda.so.{version}")
    return LoaderFact(drivers=(found,))


COMPAT = libcuda("/usr/local/cuda-13.0/compat", "580.95.05")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([H100, COMPAT], Ok, id="data-centre-gpu"),
        pytest.param([GEFORCE, COMPAT], Severity.ERROR, id="consumer-gpu"),
        pytest.param([H100], Severity.ERROR, id="no-package"),
        pytest.param(
            [H100, libcuda("/usr/local/cuda-12.9/compat", "575.57.08")],
            Severity.ERROR,
            id="package-of-an-older-cuda",
        ),
        pytest.param(
            [H100, libcuda("/usr/lib/x86_64-linux-gnu", "580.95.05")],
            Severity.ERROR,
            id="no-package-but-a-mismatch",
        ),
    ],
)
def test_old_driver_with_forward_compatibility(facts: list[Fact], expected: object) -> None:
    assert severity("driver-too-old-for-cuda", CU130, *facts) == expected
