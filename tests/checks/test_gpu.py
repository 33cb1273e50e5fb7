from __future__ import annotations

import pytest

from envdoctor.facts import (
    ContainerFact,
    CudaStartFact,
    Fact,
    GpuProcess,
    KernelLogFact,
    LoaderFact,
    ServicesFact,
    TorchBuildFact,
)
from envdoctor.verdict import Ok, Problem, Severity, Skipped
from tests.machines import GIB, gpu, nvidia, outcomes, problem, severity, variables

FABRIC = "gpu-fabric-not-ready"
DOWN = ServicesFact(states=(("nvidia-fabricmanager", "inactive"),))
UP = ServicesFact(states=(("nvidia-fabricmanager", "active=true"),))
READY = nvidia(gpu(fabric="completed"), gpu(1, fabric="completed"))
WAITING = nvidia(gpu(fabric="in_progress"), gpu(1, fabric="completed"))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([WAITING], Severity.ERROR, id="waiting"),
        pytest.param([nvidia(gpu(fabric="not_started")), DOWN], Severity.ERROR, id="not-started"),
        pytest.param([WAITING, CudaStartFact(code=0)], Ok, id="waiting-but-cuda-starts"),
        pytest.param([READY, CudaStartFact(code=802)], Severity.ERROR, id="cuda-says-802"),
        pytest.param([READY, DOWN], Severity.WARNING, id="set-up-but-the-service-is-gone"),
        pytest.param([READY, UP], Ok, id="ready"),
        pytest.param([nvidia(gpu(fabric="not_supported")), DOWN], Ok, id="no-fabric"),
        pytest.param([nvidia(gpu(fabric="")), DOWN], Ok, id="unknown-fabric"),
        pytest.param([nvidia(gpus=())], Skipped, id="no-gpu"),
    ],
)
def test_gpu_fabric_not_ready(facts: list[object], expected: object) -> None:
    assert severity(FABRIC, *facts) == expected  # type: ignore[arg-type]


def test_fabric_manager_is_for_the_admin() -> None:
    found = problem(FABRIC, WAITING, DOWN)
    assert found.owner == "admin"
    assert found.remedy.kind == "admin-start-service"
    assert found.culprit == "nvidia-fabricmanager"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([], Skipped, id="nobody-started-it"),
        pytest.param([CudaStartFact(code=0, num_devices=1)], Ok, id="starts"),
        pytest.param([CudaStartFact(code=999, name="UNKNOWN")], Severity.ERROR, id="refuses"),
        pytest.param(
            [CudaStartFact(code=0, runtime_code=46)], Severity.ERROR, id="runtime-refuses"
        ),
        pytest.param([CudaStartFact(code=802)], Skipped, id="fabric-is-another-finding"),
        pytest.param([CudaStartFact(code=803), LoaderFact()], Skipped, id="no-libcuda"),
    ],
)
def test_cuda_does_not_start(facts: list[Fact], expected: object) -> None:
    assert severity("cuda-does-not-start", *facts) == expected


def test_container_that_lost_its_devices_is_started_anew() -> None:
    facts = (CudaStartFact(code=999), ContainerFact(kind="docker"))
    assert problem("cuda-does-not-start", *facts).remedy.kind == "container-option"
    assert problem("cuda-does-not-start", CudaStartFact(code=999)).remedy.kind == "reboot"


def held(*, used: int, is_orphan: bool) -> Problem:
    process = GpuProcess(pid=4711, name="python", memory_bytes=used, is_orphan=is_orphan)
    fact = nvidia(gpu(memory_used_bytes=used, processes=(process,)))
    return problem("gpu-memory-held", fact)


def test_memory_of_a_run_that_goes_on_is_a_note_without_a_kill() -> None:
    found = held(used=100 * GIB, is_orphan=False)
    assert found.severity is Severity.INFO
    assert "4711" in found.message
    assert found.remedy.commands == ()


def test_much_memory_of_a_left_over_process_is_a_warning() -> None:
    found = held(used=100 * GIB, is_orphan=True)
    assert found.severity is Severity.WARNING
    assert found.remedy.commands == ("kill 4711",)


def test_little_memory_of_a_left_over_process_is_a_note() -> None:
    assert held(used=GIB, is_orphan=True).severity is Severity.INFO


def test_memory_of_a_gpu_that_is_hidden_does_not_matter() -> None:
    process = GpuProcess(pid=1)
    fact = nvidia(gpu(processes=(process,)), gpu(1))
    hidden = variables(CUDA_VISIBLE_DEVICES="1")
    assert severity("gpu-memory-held", fact, hidden) is Ok


def test_hardware_failures_in_the_kernel_log_each_once() -> None:
    lines = (
        "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3d:00): 31, pid=5, name=python, MMU Fault: a program's own",
    )
    (found,) = outcomes("gpu-fault-in-kernel-log", KernelLogFact(lines=lines))
    assert isinstance(found, Problem)
    assert found.culprit == "GPU at PCI:0000:1b:00"
    assert (found.severity, found.remedy.kind) == (Severity.ERROR, "reboot")


def test_gpu_off_the_bus_is_an_error_unless_nvml_says_so_itself() -> None:
    log = KernelLogFact(lines=("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",))
    assert severity("gpu-fault-in-kernel-log", log) is Severity.ERROR
    lost = nvidia(error="GPU is lost", error_code=15)
    assert severity("gpu-fault-in-kernel-log", log, lost) is Severity.WARNING


@pytest.mark.parametrize(
    ("capability", "build", "expected"),
    [
        ("7.0", TorchBuildFact(path="/t", version="2.11.0+cu130", cuda="13.0"), Severity.ERROR),
        ("7.0", TorchBuildFact(path="/t", version="2.9.1+cu128", cuda="12.8"), Ok),
        ("7.0", TorchBuildFact(path="/t", version="2.7.1+cu128", cuda="12.8"), Severity.ERROR),
        ("12.0", TorchBuildFact(path="/t", version="2.5.1+cu121", cuda="12.1"), Severity.ERROR),
        ("12.1", TorchBuildFact(path="/t", version="2.11.0", cuda="13.0"), Ok),
        ("7.0", TorchBuildFact(path="/t", version="2.8.0a0+nv25.06", cuda="13.0"), Skipped),
        ("7.0", TorchBuildFact(path="/t", version="2.11.0+cu99", cuda="9.9"), Skipped),
    ],
)
def test_official_wheel_speaks_for_a_build_without_its_list(
    capability: str, build: TorchBuildFact, expected: object
) -> None:
    machine = nvidia(gpu(capability=capability))
    assert severity("gpu-arch-not-in-build", machine, build) == expected


def test_program_faults_in_the_kernel_log_are_no_finding() -> None:
    log = KernelLogFact(lines=("NVRM: Xid (PCI:0000:3d:00): 13, Graphics Exception",))
    assert severity("gpu-fault-in-kernel-log", log) is Ok
