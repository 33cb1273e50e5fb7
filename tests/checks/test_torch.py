from __future__ import annotations

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import (
    ContainerFact,
    Distribution,
    DistributionsFact,
    Fact,
    FactSet,
    Gpu,
    InterpreterFact,
    NvidiaFact,
    OtherGpusFact,
    PolicyFact,
    TorchBuildFact,
)
from envdoctor.runner import run
from envdoctor.verdict import Ok, Outcome, Problem, Severity, Skipped

CU130_ARCH = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
CU130 = TorchBuildFact(path="/env/torch", version="2.14.1+cu130", cuda="13.0", arch=CU130_ARCH)
CU128 = TorchBuildFact(path="/env/torch", version="2.10.0+cu128", cuda="12.8", arch=CU130_ARCH)
CPU = TorchBuildFact(path="/env/torch", version="2.13.0+cpu")


def gpu(capability: str, name: str = "some GPU") -> Gpu:
    return Gpu(index=0, name=name, capability=capability, memory_bytes=10**10)


def machine(driver: str | None = "580.65.06", *gpus: Gpu, error: str = "") -> NvidiaFact:
    return NvidiaFact(num_devices=1, driver=driver, gpus=gpus, error=error)


NO_GPU = NvidiaFact(num_devices=0)


def outcome(check: str, *facts: Fact) -> Outcome:
    base: list[Fact] = [
        InterpreterFact(
            prefix="/env",
            python="/env/bin/python",
            version="3.11.7",
            is_venv=True,
            site_packages=(),
        ),
        DistributionsFact(distributions=()),
        ContainerFact(),
        PolicyFact(),
        OtherGpusFact(),
    ]
    findings = run(BUILTIN_CHECKS, FactSet([*base, *facts]))
    return next(item.outcome for item in findings if item.check == check)


def severity(check: str, *facts: Fact) -> Severity | type[Outcome]:
    found = outcome(check, *facts)
    return found.severity if isinstance(found, Problem) else type(found)


def test_torch_that_is_absent_is_an_error_that_names_the_build() -> None:
    found = outcome("torch-not-installed", TorchBuildFact(path=None))
    assert isinstance(found, Problem)
    assert found.remedy.commands == ("envdoctor build --profile cpu",)


def test_torch_with_metadata_but_no_folder_is_broken_not_absent() -> None:
    dist = Distribution(name="torch", version="2.10.0", path="/env/torch-2.10.0.dist-info")
    found = outcome(
        "torch-not-installed", TorchBuildFact(path=None), DistributionsFact(distributions=(dist,))
    )
    assert isinstance(found, Problem)
    assert "broken" in found.message
    assert found.remedy.commands[0].endswith("torch==2.10.0")


@pytest.mark.parametrize(
    ("build", "nvidia", "policy", "expected"),
    [
        pytest.param(CPU, machine(), PolicyFact(), Severity.ERROR, id="cpu-build-with-gpu"),
        pytest.param(CPU, machine(None), PolicyFact(), Severity.ERROR, id="gpu-without-driver"),
        pytest.param(CPU, NO_GPU, PolicyFact(), Ok, id="cpu-build-without-gpu"),
        pytest.param(CPU, machine(), PolicyFact(variant="cpu"), Ok, id="cpu-is-wanted"),
        pytest.param(CPU, machine(), PolicyFact(expect_gpu=False), Ok, id="no-gpu-is-wanted"),
        pytest.param(CU128, machine(), PolicyFact(), Ok, id="cuda-build"),
    ],
)
def test_cpu_torch_on_gpu_machine(
    build: TorchBuildFact, nvidia: NvidiaFact, policy: PolicyFact, expected: object
) -> None:
    assert severity("cpu-torch-on-gpu-machine", build, nvidia, policy) == expected


@pytest.mark.parametrize(
    ("nvidia", "expect_gpu", "expected"),
    [
        pytest.param(NO_GPU, None, Severity.INFO, id="a-note"),
        pytest.param(NO_GPU, True, Severity.ERROR, id="expected"),
        pytest.param(NO_GPU, False, Ok, id="silenced"),
        pytest.param(machine(), True, Ok, id="there"),
    ],
)
def test_cuda_torch_without_gpu(
    nvidia: NvidiaFact,
    expect_gpu: bool | None,
    expected: object,
) -> None:
    policy = PolicyFact(expect_gpu=expect_gpu)
    assert severity("cuda-torch-without-gpu", CU128, nvidia, policy) == expected


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(CU128, Ok, id="as-wanted"),
        pytest.param(CPU, Severity.ERROR, id="cpu"),
        pytest.param(
            TorchBuildFact(path="/t", version="2.10.0+xpu", xpu="2025"), Severity.ERROR, id="xpu"
        ),
        pytest.param(CU130, Severity.ERROR, id="another-cuda"),
        pytest.param(
            TorchBuildFact(path="/t", version="2.9.1+cu128", cuda="12.8"),
            Severity.ERROR,
            id="another-version",
        ),
    ],
)
def test_torch_not_of_profile(build: TorchBuildFact, expected: object) -> None:
    policy = PolicyFact(profile="cu128", torch_version="2.10.0", variant="cu128")
    assert severity("torch-not-of-profile", build, policy) == expected


@pytest.mark.parametrize(
    ("nvidia", "expected"),
    [
        pytest.param(NO_GPU, Skipped, id="no-device"),
        pytest.param(machine(None), Severity.ERROR, id="device-without-driver"),
        pytest.param(machine(error="Unknown Error"), Severity.ERROR, id="driver-refuses"),
        pytest.param(machine(), Ok, id="driver-works"),
    ],
)
def test_no_nvidia_driver(nvidia: NvidiaFact, expected: object) -> None:
    assert severity("no-nvidia-driver", nvidia, CU128) == expected


@pytest.mark.parametrize(
    ("build", "driver", "expected"),
    [
        pytest.param(CU128, "525.60.13", Ok, id="exactly-the-minimum"),
        pytest.param(CU128, "525.60.12", Severity.ERROR, id="one-patch-below"),
        pytest.param(CU128, "525.100.01", Ok, id="numbers-not-text"),
        pytest.param(CU130, "575.51.03", Severity.ERROR, id="cuda-13-on-575"),
        pytest.param(CU130, "580.65.06", Ok, id="cuda-13-on-580"),
        pytest.param(
            TorchBuildFact(path="/t", version="2.15.0+cu132", cuda="13.2"),
            "580.65.06",
            Ok,
            id="minor-version",
        ),
        pytest.param(
            TorchBuildFact(path="/t", version="9.0", cuda="99.0"),
            "580.65.06",
            Skipped,
            id="unknown-major",
        ),
        pytest.param(CPU, "470.1.1", Skipped, id="cpu-build"),
    ],
)
def test_driver_too_old_for_cuda(build: TorchBuildFact, driver: str, expected: object) -> None:
    assert severity("driver-too-old-for-cuda", build, machine(driver)) == expected


@pytest.mark.parametrize(
    ("capability", "arch", "runs"),
    [
        pytest.param("9.0", CU130_ARCH, True, id="H200"),
        pytest.param("8.9", CU130_ARCH, True, id="RTX-4090-runs-sm_86"),
        pytest.param("8.7", CU130_ARCH, True, id="Orin-runs-sm_86"),
        pytest.param("10.3", CU130_ARCH, True, id="B300-runs-sm_100"),
        pytest.param("12.1", CU130_ARCH, True, id="GB10-runs-sm_120"),
        pytest.param("7.0", CU130_ARCH, False, id="V100"),
        pytest.param("6.1", CU130_ARCH, False, id="GTX-1080"),
        pytest.param("11.0", CU130_ARCH, False, id="Thor"),
        pytest.param("9.0", ("sm_90a",), True, id="suffix-a-exactly"),
        pytest.param("10.3", ("sm_100a",), False, id="suffix-a-is-no-family"),
        pytest.param("10.3", ("sm_100f",), True, id="suffix-f-is-a-family"),
        pytest.param("12.0", ("sm_80", "compute_90"), True, id="ptx-runs-on-newer"),
        pytest.param("8.0", ("compute_90",), False, id="ptx-does-not-run-on-older"),
    ],
)
def test_gpu_arch_not_in_build(capability: str, arch: tuple[str, ...], *, runs: bool) -> None:
    build = TorchBuildFact(path="/t", version="2.14.1+cu130", cuda="13.0", arch=arch)
    expected = Ok if runs else Severity.ERROR
    assert (
        severity("gpu-arch-not-in-build", build, machine("580.65.06", gpu(capability))) == expected
    )


def test_gpus_without_code_are_one_finding_about_torch() -> None:
    gpus = [gpu("12.0"), gpu("9.0"), gpu("12.0"), gpu("7.0")]
    build = TorchBuildFact(path="/t", version="2.10.0+cu126", cuda="12.6", arch=("sm_90",))
    found = outcome("gpu-arch-not-in-build", build, machine("580.65.06", *gpus))
    assert isinstance(found, Problem)
    assert found.culprit == "torch"
    assert "is sm_120" in found.message
    assert "is sm_70" in found.message
    assert "1 more like it" in found.message


def test_broken_driver_hides_what_follows_from_it() -> None:
    """One root cause is one finding."""
    broken = machine(None, error="driver not loaded")
    assert severity("driver-too-old-for-cuda", CU130, broken) is Skipped
    assert severity("gpu-arch-not-in-build", CU130, broken) is Skipped
