from __future__ import annotations

from typing import Any

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.diagnose import loaded_libraries
from envdoctor.facts import (
    AllReduceProbeFact,
    AttentionCase,
    AttentionProbeFact,
    ComputeProbeFact,
    Distribution,
    DistributionsFact,
    Fact,
    FactSet,
    ImportProbeFact,
    InterpreterFact,
    LoadedLibrary,
    NvidiaFact,
    Operation,
    PolicyFact,
    ProbeRun,
    SharedObject,
    SharedObjectsFact,
    TorchBuildFact,
)
from envdoctor.report import Report
from envdoctor.runner import run, select
from envdoctor.verdict import Ok, Outcome, Problem, Severity, Skipped

PASSED = ProbeRun(status="passed", seconds=3.0, reason="")
IDS = (
    "torch-import-fails",
    "torch-sees-no-gpu",
    "cudnn-refused-by-torch",
    "library-loaded-from-elsewhere",
    "gpu-computation-fails",
    "gpu-all-reduce-fails",
    "compiled-attention-fails",
    "compiled-attention-not-fused",
)
MIB = 1024**2


def dist(name: str, version: str) -> Distribution:
    return Distribution(name=name, version=version, path=f"/e/{name}.dist-info")


BASE: tuple[Fact, ...] = (
    InterpreterFact(
        prefix="/e", python="/e/bin/python", version="3.11.7", is_venv=True, site_packages=()
    ),
    DistributionsFact(
        distributions=(dist("torch", "2.11.0"), dist("nvidia-cudnn-cu13", "9.19.0.56"))
    ),
    PolicyFact(pip_install="pip install"),
    TorchBuildFact(path="/e/torch", version="2.11.0+cu130", cuda="13.0"),
    NvidiaFact(num_devices=2, driver="580.65.06"),
    SharedObjectsFact(
        objects=(
            SharedObject(
                path="/e/nvidia/cudnn/lib/libcudnn.so.9", distribution="nvidia-cudnn-cu13"
            ),
        )
    ),
)


def importing(**changes: Any) -> ImportProbeFact:
    values: dict[str, Any] = {
        "run": PASSED,
        "torch": "2.11.0+cu130",
        "cuda": "13.0",
        "cuda_available": True,
        "num_devices": 2,
        "cudnn": "91900",
        "import_seconds": 4.4,
    }
    return ImportProbeFact(**{**values, **changes})


def operation(device: str = "cuda:0", name: str = "matmul", **changes: Any) -> Operation:
    values: dict[str, Any] = {"status": "passed", "distance": 2e-4}
    return Operation(device=device, name=name, **{**values, **changes})


def attention(distance: float | None = 0.004, peak: int | None = 8 * MIB) -> AttentionProbeFact:
    cases = tuple(
        AttentionCase(
            length=length,
            distance=distance,
            seconds=20.0,
            peak_bytes=peak,
            scores_bytes=2 * length * length * 4,
        )
        for length in (512, 4096)
    )
    return AttentionProbeFact(run=PASSED, device="cuda:0", dtype="bfloat16", cases=cases)


HEALTHY: tuple[Fact, ...] = (
    importing(libraries=(LoadedLibrary(name="libx.so", path="/e/x", predicted="/e/x"),)),
    ComputeProbeFact(run=PASSED, operations=(operation(), operation("cuda:1"))),
    AllReduceProbeFact(run=PASSED, num_ranks=2, reduce_seconds=6.0),
    attention(),
)


def report(*facts: Fact) -> Report:
    checks = select(BUILTIN_CHECKS, IDS)
    return Report(environment={}, findings=run(checks, FactSet([*BASE, *HEALTHY, *facts])))


def outcome(check: str, *facts: Fact) -> Outcome:
    return next(item.outcome for item in report(*facts).findings if item.check == check)


def problem(check: str, *facts: Fact) -> Problem:
    found = outcome(check, *facts)
    assert isinstance(found, Problem), found
    return found


@pytest.mark.parametrize("check", IDS)
def test_healthy_machine_is_ok(check: str) -> None:
    assert isinstance(outcome(check), Ok)


@pytest.mark.parametrize("check", IDS)
def test_without_probes_nothing_is_said(check: str) -> None:
    facts = (ImportProbeFact(), ComputeProbeFact(), AllReduceProbeFact(), AttentionProbeFact())
    found = outcome(check, *facts)
    assert isinstance(found, Skipped)
    assert "--probe" in found.reason


AT = "importing torch"


@pytest.mark.parametrize(
    ("ended", "culprit", "says"),
    [
        pytest.param(
            ProbeRun(
                status="failed", reason="ImportError: libcudnn.so.9: cannot open shared", step=AT
            ),
            "libcudnn.so.9",
            "libcudnn.so.9",
            id="missing-library",
        ),
        pytest.param(
            ProbeRun(
                status="failed", reason="ModuleNotFoundError: No module named 'sympy'", step=AT
            ),
            "sympy",
            "sympy",
            id="missing-module",
        ),
        pytest.param(
            ProbeRun(status="crashed", reason="SIGBUS", step=AT),
            "torch",
            "SIGBUS (at: importing torch): a library is shorter",
            id="truncated-library",
        ),
        pytest.param(
            ProbeRun(status="crashed", reason="signal 64", step=AT),
            "torch",
            "signal 64",
            id="odd-signal",
        ),
        pytest.param(
            ProbeRun(status="timed_out", reason="did not end within 120 s", step=AT),
            "torch",
            "did not end within 120 s",
            id="hang",
        ),
    ],
)
def test_import_that_fails_names_what_the_message_names(
    ended: ProbeRun, culprit: str, says: str
) -> None:
    found = problem("torch-import-fails", importing(run=ended))
    assert (found.culprit, found.severity) == (culprit, Severity.ERROR)
    assert says in found.message
    owner = "nvidia-cudnn-cu13==9.19.0.56" if culprit == "libcudnn.so.9" else "torch==2.11.0"
    assert found.remedy.commands == (f"pip install {owner}",)


def test_import_that_was_killed_is_not_cured_by_another_torch() -> None:
    killed = ProbeRun(status="crashed", reason="SIGKILL", step=AT)
    found = problem("torch-import-fails", importing(run=killed))
    assert "memory" in found.remedy.text
    assert found.remedy.commands == ()


def test_import_that_hangs_may_only_need_more_time() -> None:
    ended = ProbeRun(status="timed_out", reason="did not end within 120 s", step=AT)
    assert "--probe-timeout" in problem("torch-import-fails", importing(run=ended)).remedy.text


def test_import_that_fails_is_the_only_error() -> None:
    found = report(importing(run=ProbeRun(status="crashed", reason="SIGSEGV", step=AT)))
    assert [item.culprit for item in found.problems()] == ["torch"]


@pytest.mark.parametrize(
    ("status", "reason", "says"),
    [
        ("failed", "/e/bin/python: Exec format error", "failed: /e/bin/python: Exec format error"),
        ("crashed", "SIGKILL", "was ended by SIGKILL: something killed it"),
        ("timed_out", "did not end within 120 s", "did not end within 120 s"),
    ],
)
def test_python_that_does_not_start_is_not_cured_by_another_torch(
    status: Any, reason: str, says: str
) -> None:
    found = problem("torch-import-fails", importing(run=ProbeRun(status=status, reason=reason)))
    assert found.message.startswith("the environment's Python, started to import torch, ")
    assert says in found.message
    assert (found.culprit, found.remedy.kind) == ("bin/python", "recreate-venv")
    assert found.remedy.commands == ()


def test_gpu_that_torch_does_not_see_tells_what_torch_says() -> None:
    told = importing(
        cuda_available=False, num_devices=0, cuda_error="No CUDA GPUs are available\nmore"
    )
    found = problem("torch-sees-no-gpu", told)
    assert found.message.endswith("torch sees none: No CUDA GPUs are available")
    assert [(item.expected, item.found) for item in found.evidence] == [
        ("2", "0"),
        ("True", "False"),
    ]


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param((importing(cuda=None, cuda_available=False),), id="cpu-build"),
        pytest.param(
            (importing(cuda_available=False), NvidiaFact(num_devices=0)), id="machine-without-gpu"
        ),
    ],
)
def test_torch_need_not_see_a_gpu_everywhere(facts: tuple[Fact, ...]) -> None:
    assert isinstance(outcome("torch-sees-no-gpu", *facts), Skipped)


def test_cudnn_that_torch_refuses_names_the_files() -> None:
    libraries = (LoadedLibrary(name="libcudnn.so.9", path="/usr/lib/libcudnn.so.9.1.0"),)
    told = importing(cudnn_error="cuDNN version incompatibility: ...", libraries=libraries)
    found = problem("cudnn-refused-by-torch", told)
    assert [item.subject for item in found.evidence] == ["/usr/lib/libcudnn.so.9.1.0"]
    assert found.remedy.commands == ("pip install nvidia-cudnn-cu13==9.19.0.56",)


def test_library_from_elsewhere_is_a_warning_for_each() -> None:
    libraries = (
        LoadedLibrary(name="libnccl.so.2", path="/opt/libnccl.so.2", predicted="/e/libnccl.so.2"),
        LoadedLibrary(name="libcuda.so.1", path="/usr/lib/libcuda.so.580.65.06"),
    )
    found = problem("library-loaded-from-elsewhere", importing(libraries=libraries))
    assert (found.culprit, found.severity) == ("/opt/libnccl.so.2", Severity.WARNING)


def test_libraries_that_computing_opens_are_compared_as_well() -> None:
    late = LoadedLibrary(name="libcudnn_ops.so.9", path="/opt/x", predicted="/e/x")
    found = problem(
        "library-loaded-from-elsewhere", ComputeProbeFact(run=PASSED, libraries=(late,))
    )
    assert found.culprit == "/opt/x"


def test_nothing_foretold_is_no_health() -> None:
    assert isinstance(outcome("library-loaded-from-elsewhere", importing(libraries=())), Skipped)


FAILED: dict[str, Any] = {"status": "failed", "distance": None, "reason": "RuntimeError: no\nmore"}


@pytest.mark.parametrize(
    ("operations", "culprits"),
    [
        pytest.param([operation(distance=0.5)], ["matmul on cuda:0"], id="wrong"),
        pytest.param([operation(distance=None)], ["matmul on cuda:0"], id="not-finite"),
        pytest.param([operation(distance=0.02)], [], id="at-the-limit"),
        pytest.param(
            [operation(**FAILED), operation(name="convolution", **FAILED)],
            ["matmul on cuda:0"],
            id="the-first-speaks-for-the-device",
        ),
        pytest.param(
            [operation("cuda:0", **FAILED), operation("cuda:1", **FAILED)],
            ["matmul on cuda:0, cuda:1"],
            id="one-finding-for-all-devices",
        ),
        pytest.param(
            [operation("cuda:0", **FAILED), operation("cuda:1", "convolution", **FAILED)],
            ["matmul on cuda:0", "convolution on cuda:1"],
            id="different-failures",
        ),
        pytest.param([operation(status="skipped", distance=None)], [], id="not-offered"),
    ],
)
def test_computations(operations: list[Operation], culprits: list[str]) -> None:
    found = report(ComputeProbeFact(run=PASSED, operations=tuple(operations)))
    assert [item.culprit for item in found.problems(Severity.ERROR)] == culprits


def test_crash_while_computing_is_placed() -> None:
    ended = ProbeRun(status="crashed", reason="SIGABRT", step="convolution on cuda:1")
    found = problem("gpu-computation-fails", ComputeProbeFact(run=ended))
    assert found.culprit == "convolution on cuda:1"


def test_what_follows_from_a_failing_computation_is_not_told_twice() -> None:
    ended = ProbeRun(status="crashed", reason="SIGABRT", step="matmul on cuda:0")
    found = report(ComputeProbeFact(run=ended), AllReduceProbeFact(run=ended))
    assert [item.culprit for item in found.problems()] == ["matmul on cuda:0"]
    (left,) = [item for item in found.findings if item.check == "gpu-all-reduce-fails"]
    assert isinstance(left.outcome, Skipped)
    assert left.outcome.reason.startswith("follows from gpu-computation-fails: the sum over all")


def test_collective_that_hangs_shows_what_nccl_wrote() -> None:
    ended = ProbeRun(
        status="timed_out",
        reason="did not end within 120 s",
        step="rank 1 sums",
        log="probe-step: rank 1 sums\nNCCL WARN Missing interface",
    )
    found = problem("gpu-all-reduce-fails", AllReduceProbeFact(run=ended))
    assert found.culprit == "NCCL"
    assert found.evidence[-1].found == "NCCL WARN Missing interface"


@pytest.mark.parametrize(
    ("probe", "check", "says"),
    [
        pytest.param(attention(distance=0.1), "compiled-attention-fails", "off by 0.1", id="wrong"),
        pytest.param(attention(distance=None), "compiled-attention-fails", "finite", id="nan"),
        pytest.param(
            attention(peak=200 * MIB), "compiled-attention-not-fused", "not fused", id="dense"
        ),
        pytest.param(
            AttentionProbeFact(run=ProbeRun(status="failed", reason="InductorError: gcc")),
            "compiled-attention-fails",
            "InductorError: gcc",
            id="does-not-compile",
        ),
    ],
)
def test_attention(probe: AttentionProbeFact, check: str, says: str) -> None:
    found = report(probe).problems()
    assert len(found) == 1
    assert says in problem(check, probe).message


@pytest.mark.parametrize(("peak_mib", "fused"), [(32, True), (33, False)])
def test_fused_attention_takes_a_quarter_of_the_scores_at_most(
    peak_mib: int, *, fused: bool
) -> None:
    found = outcome("compiled-attention-not-fused", attention(peak=peak_mib * MIB))
    assert isinstance(found, Ok) is fused


def test_memory_that_was_not_measured_is_no_health() -> None:
    assert isinstance(outcome("compiled-attention-not-fused", attention(peak=None)), Skipped)


def test_heading_lists_where_libraries_were_loaded_from() -> None:
    late = LoadedLibrary(name="libcudnn_ops.so.9", path="/e/ops")
    facts = FactSet([HEALTHY[0], ComputeProbeFact(run=PASSED, libraries=(late,))])
    assert loaded_libraries(facts) == ["/e/ops", "/e/x"]
    assert loaded_libraries(FactSet([ImportProbeFact()])) is None
