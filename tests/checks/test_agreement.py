from __future__ import annotations

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import (
    CompanionBuild,
    CompanionBuildsFact,
    Distribution,
    DistributionsFact,
    Fact,
    FactSet,
    HostFact,
    ImportFolder,
    ImportPathFact,
    InterpreterFact,
    NvidiaFact,
    OtherGpusFact,
    PolicyFact,
    RecordsFact,
    TorchBuildFact,
    VariablesFact,
)
from envdoctor.runner import run
from envdoctor.verdict import Ok, Outcome, Problem, Severity, Skipped

CU128 = TorchBuildFact(path="/env/torch", version="2.9.1+cu128", cuda="12.8", has_cuda_library=True)
CU130 = TorchBuildFact(
    path="/env/torch", version="2.11.0+cu130", cuda="13.0", has_cuda_library=True
)
CPU = TorchBuildFact(path="/env/torch", version="2.9.1+cpu")


def dist(name: str, version: str, *requires: str) -> Distribution:
    path = f"/env/{name}-{version}.dist-info"
    return Distribution(name=name, version=version, path=path, requires=requires, installer="uv")


TORCH = dist("torch", "2.9.1", "triton==3.5.1", "nvidia-nccl-cu12==2.27.5")
TRITON = dist("triton", "3.5.1")
NCCL = dist("nvidia-nccl-cu12", "2.27.5")


def outcomes(check: str, *facts: Fact) -> list[Outcome]:
    base: list[Fact] = [
        InterpreterFact(
            prefix="/env", python=None, version="3.11.7", is_venv=True, site_packages=("/env",)
        ),
        HostFact(
            machine="x86_64", kernel="6.1", glibc="2.36", shm_bytes=None, disk_free_bytes=None
        ),
        NvidiaFact(num_devices=0),
        CompanionBuildsFact(builds=()),
        RecordsFact(distributions=()),
        VariablesFact(),
        ImportPathFact(folders=(ImportFolder(path="/env", origin="site-packages"),)),
        OtherGpusFact(),
        PolicyFact(),
        CU128,
    ]
    findings = run(BUILTIN_CHECKS, FactSet([*base, *facts]))
    return [item.outcome for item in findings if item.check == check]


def problem(check: str, *facts: Fact) -> Problem:
    (found,) = outcomes(check, *facts)
    assert isinstance(found, Problem)
    return found


def installed(*more: Distribution) -> DistributionsFact:
    return DistributionsFact(distributions=(TORCH, TRITON, NCCL, *more))


@pytest.mark.parametrize(
    ("one", "kind", "command"),
    [
        pytest.param(
            dist("torchvision", "0.24.0", "torch (==2.9.0)"),
            "install-matching-pair",
            "torchvision==0.24.1",
            id="torchvision-old-style-parentheses",
        ),
        pytest.param(
            dist("torchaudio", "2.8.0", "torch==2.8.0"),
            "install-matching-pair",
            "torchaudio==2.9.1",
            id="torchaudio",
        ),
        pytest.param(
            dist("xformers", "0.0.33", "numpy", "torch==2.9.0"),
            "install-matching-wheel",
            "--upgrade xformers 'torch==2.9.1'",
            id="xformers",
        ),
        pytest.param(
            dist("peft", "0.1", "torch<2.9"),
            "install-pinned-version",
            "--upgrade peft 'torch==2.9.1'",
            id="an-upper-bound",
        ),
        pytest.param(
            dist("liger", "0.1", "triton>=3.6"),
            "install-pinned-version",
            "'triton>=3.6' 'torch==2.9.1'",
            id="on-triton",
        ),
        pytest.param(
            dist("xgboost", "3.0", "nvidia-nccl-cu12>=2.28"),
            "install-pinned-version",
            "'nvidia-nccl-cu12>=2.28' 'torch==2.9.1'",
            id="on-nccl",
        ),
    ],
)
def test_requirement_that_does_not_hold_names_both_sides(
    one: Distribution, kind: str, command: str
) -> None:
    found = problem("requirement-not-met", installed(one))
    assert found.culprit == one.name
    assert found.severity is Severity.ERROR
    assert found.remedy.kind == kind
    assert found.remedy.commands[0].endswith(command)
    assert "installed is" in found.message


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(dist("xformers", "0.0.33", "torch==2.9.1"), id="holds"),
        pytest.param(dist("x", "1", 'torch==1.0; extra == "old"'), id="extra-nobody-asked-for"),
        pytest.param(dist("x", "1", 'torch==1.0; sys_platform == "darwin"'), id="other-system"),
        pytest.param(dist("x", "1", "torch==not a version"), id="no-valid-requirement"),
        pytest.param(dist("x", "1", "numpy==1.0"), id="on-something-else"),
        pytest.param(dist("sglang", "0.5", "torch==2.8.0"), id="an-unwanted-package"),
        pytest.param(
            dist("nvidia-cudnn-cu12", "9.1", "nvidia-cublas-cu12"), id="among-nvidia-packages"
        ),
    ],
)
def test_requirement_that_is_nobodys_problem(one: Distribution) -> None:
    (found,) = outcomes("requirement-not-met", installed(one))
    assert isinstance(found, Ok)


def test_requirement_on_an_absent_package_is_a_warning() -> None:
    found = problem("requirement-not-met", installed(dist("x", "1", "xformers==0.0.33")))
    assert found.severity is Severity.WARNING
    assert "not installed" in found.message


def test_broken_pin_on_torch_hides_those_on_what_torch_brings() -> None:
    one = dist("x", "1", "triton==3.4.0", "torch==2.8.0")
    found = problem("requirement-not-met", installed(one))
    assert "torch==2.8.0" in found.message


def test_who_breaks_torchs_own_pin_is_named_by_the_check_of_pins() -> None:
    facts = DistributionsFact(
        distributions=(TORCH, NCCL, dist("triton", "3.6.0"), dist("x", "1", "triton==3.5.1"))
    )
    (found,) = outcomes("requirement-not-met", facts)
    assert isinstance(found, Ok)
    assert problem("package-version-not-pinned", facts).culprit == "triton"


@pytest.mark.parametrize("reverse", [False, True])
def test_two_engines_with_different_pins_are_one_finding(*, reverse: bool) -> None:
    engines = [
        dist("sglang", "0.5.6", "torch==2.9.1", "sgl-kernel==0.3.18"),
        dist("vllm", "0.11.0", "torch==2.8.0", "xformers==0.0.32.post1", "depyf"),
        dist("depyf", "0.19"),
    ]
    facts = installed(*(reversed(engines) if reverse else engines))
    found = problem("engines-pin-different-torch", facts)
    assert found.culprit == "vllm"
    assert found.remedy.kind == "separate-environments"
    assert found.remedy.commands[0].endswith(" vllm depyf")
    assert "sglang 0.5.6 requires torch==2.9.1" in found.message
    assert problem("stray-package", facts).culprit == "sglang"
    assert isinstance(outcomes("requirement-not-met", facts)[0], Ok)


@pytest.mark.parametrize(
    ("pins", "culprit"),
    [
        pytest.param(("torch==2.9.1", "torch<=2.8.0,>=2.0"), "vllm", id="a-range-below"),
        pytest.param(("torch==2.10.0", "torch==2.9.1"), "sglang", id="the-other-holds"),
        pytest.param(("torch==2.10.0", "torch==2.8.0"), "sglang", id="neither-holds"),
    ],
)
def test_engine_whose_pin_does_not_hold_is_the_culprit(pins: tuple[str, str], culprit: str) -> None:
    facts = installed(dist("sglang", "0.5.6", pins[0]), dist("vllm", "0.11.0", pins[1]))
    assert problem("engines-pin-different-torch", facts).culprit == culprit


@pytest.mark.parametrize(
    "pins",
    [
        pytest.param(("torch==2.9.1", "torch==2.9.1"), id="the-same"),
        pytest.param(("torch<2.9", "torch>=2.10"), id="none-is-exact"),
        pytest.param(("torch==2.9.1", "torch>=2.8"), id="one-is-a-range"),
        pytest.param(("torch==2.9.1", "torch==2.9.*"), id="one-is-a-prefix"),
    ],
)
def test_engines_that_agree(pins: tuple[str, str]) -> None:
    facts = installed(dist("sglang", "0.5.6", pins[0]), dist("vllm", "0.11.0", pins[1]))
    (found,) = outcomes("engines-pin-different-torch", facts)
    assert isinstance(found, Ok)


def build(name: str, version: str = "", torch: str = "", cuda: str = "") -> CompanionBuildsFact:
    found = CompanionBuild(name=name, path="/v", version=version, torch=torch, cuda=cuda)
    return CompanionBuildsFact(builds=(found,))


@pytest.mark.parametrize(
    ("torch", "companion", "expected"),
    [
        pytest.param(CU128, build("torchvision", "0.24.1+cu128", cuda="12.8"), Ok, id="a-pair"),
        pytest.param(CU128, build("torchvision", "0.24.1+cu126", cuda="12.6"), Ok, id="same-major"),
        pytest.param(
            CU130,
            build("torchvision", "0.26.0+cu128", cuda="12.8"),
            Severity.ERROR,
            id="another-cuda",
        ),
        pytest.param(
            CU128, build("torchvision", "0.24.1+cpu"), Severity.WARNING, id="cpu-beside-cuda"
        ),
        pytest.param(
            CPU,
            build("torchvision", "0.24.1+cu128", cuda="12.8"),
            Severity.ERROR,
            id="cuda-beside-cpu",
        ),
        pytest.param(
            CU128, build("torchvision", "0.22.0"), Severity.ERROR, id="release-of-another-torch"
        ),
        pytest.param(CU128, build("torchvision", "0.24.0"), Ok, id="patch-release-differs"),
        pytest.param(
            TorchBuildFact(path="/t", version="2.14.1+cu130", cuda="13.0"),
            build("torchvision", "0.29.2+cu130", cuda="13.0"),
            Ok,
            id="stable-abi",
        ),
        pytest.param(
            TorchBuildFact(path="/t", version="2.14.1+cu130", cuda="13.0"),
            build("torchaudio", "2.11.0+cu130", cuda="13.0"),
            Ok,
            id="torchaudio-has-the-stable-abi",
        ),
        pytest.param(
            CU130,
            build("xformers", torch="2.10.0+cu128", cuda="12.8"),
            Severity.INFO,
            id="xformers-for-another-cuda",
        ),
        pytest.param(
            TorchBuildFact(path="/t", version="2.15.0+cu132", cuda="13.2"),
            build("torchaudio", "2.11.0+cu130", cuda="13.0"),
            Severity.ERROR,
            id="torchaudio-wants-the-same-minor",
        ),
        pytest.param(
            TorchBuildFact(path="/t", version="2.14.1+cu130", cuda="13.0"),
            build("torchaudio", "2.11.1+cu132", cuda="13.2"),
            Ok,
            id="later-torchaudio-does-not",
        ),
        pytest.param(
            TorchBuildFact(path="/t", version="2.99.0+cu130", cuda="13.0"),
            build("torchvision", "9.9+cu130", cuda="13.0"),
            Ok,
            id="torch-that-no-table-knows",
        ),
    ],
)
def test_companion_for_another_torch(
    torch: TorchBuildFact, companion: CompanionBuildsFact, expected: object
) -> None:
    (found,) = outcomes("companion-for-another-torch", torch, companion, installed())
    assert (found.severity if isinstance(found, Problem) else type(found)) == expected


def test_companion_comes_from_torchs_own_index() -> None:
    companion = build("torchvision", "0.26.0+cu128", cuda="12.8")
    found = problem("companion-for-another-torch", CU130, companion, installed())
    assert found.remedy.kind == "install-matching-pair"
    assert found.remedy.commands[0].endswith(
        "--index-url https://download.pytorch.org/whl/cu130 torchvision==0.26.0"
    )


def flashinfer(python: str, cubin: str = "", jit: str = "") -> DistributionsFact:
    names = {"flashinfer-python": python, "flashinfer-cubin": cubin, "flashinfer-jit-cache": jit}
    return installed(*(dist(name, version) for name, version in names.items() if version))


@pytest.mark.parametrize(
    ("facts", "torch", "culprit"),
    [
        pytest.param(flashinfer("0.6.11", "0.6.11", "0.6.11+cu128"), CU128, "", id="agree"),
        pytest.param(flashinfer("0.6.11"), CU128, "", id="alone"),
        pytest.param(
            flashinfer("0.6.11", "0.6.11", "0.6.9+cu128"), CU128, "flashinfer-jit-cache", id="jit"
        ),
        pytest.param(flashinfer("0.6.11", "0.6.9"), CU128, "flashinfer-cubin", id="cubin"),
        pytest.param(
            flashinfer("0.6.11", "", "0.6.11+cu130"), CU128, "flashinfer-jit-cache", id="cuda"
        ),
    ],
)
def test_flashinfer_versions_differ(
    facts: DistributionsFact, torch: TorchBuildFact, culprit: str
) -> None:
    (found,) = outcomes("flashinfer-versions-differ", facts, torch)
    if culprit:
        assert isinstance(found, Problem)
        assert (found.culprit, found.remedy.kind) == (culprit, "align-versions")
        assert found.remedy.commands[0].rpartition("==")[2].startswith("0.6.11")
    else:
        assert isinstance(found, Ok)


def test_flashinfers_guard_that_is_off_is_turned_on_again() -> None:
    facts = flashinfer("0.6.11", "", "0.6.9+cu130")
    bypass = VariablesFact(values=(("FLASHINFER_DISABLE_VERSION_CHECK", "1"),))
    found = problem("flashinfer-versions-differ", facts, bypass)
    assert "FLASHINFER_DISABLE_VERSION_CHECK hides it" in found.message
    assert found.remedy.commands[0].endswith("flashinfer-jit-cache==0.6.11+cu128")
    assert found.remedy.commands[1] == "unset FLASHINFER_DISABLE_VERSION_CHECK"


def test_no_flashinfer_is_no_finding() -> None:
    assert isinstance(outcomes("flashinfer-versions-differ", installed())[0], Skipped)


def test_cpu_torch_that_a_pin_brought_in_names_the_pin() -> None:
    facts = DistributionsFact(
        distributions=(
            dist("torch", "2.9.0+cpu"),
            dist("xformers", "0.0.33", "numpy", "torch==2.9.0"),
            dist("accelerate", "1.0", "torch>=2.0"),
        )
    )
    machine = NvidiaFact(num_devices=1, driver="570.172.08", cuda="12.8")
    torch = TorchBuildFact(path="/env/torch", version="2.9.0+cpu")
    found = problem("cpu-torch-on-gpu-machine", facts, machine, torch)
    assert "xformers 0.0.33 requires torch==2.9.0" in found.message
    assert "accelerate" not in found.message
    assert found.remedy.kind == "reinstall-from-cuda-index"
    assert found.remedy.commands[0].endswith(
        "--index-url https://download.pytorch.org/whl/cu128 torch==2.9.0+cu128"
    )
    assert "--no-deps" not in found.remedy.commands[0]


@pytest.mark.parametrize(
    ("version", "cuda"), [("2.11.0+cpu", "12.8"), ("2.99.0+cpu", "13.0"), ("0.1", "13.0")]
)
def test_cpu_torch_without_a_build_for_this_driver_is_built_from_a_profile(
    version: str, cuda: str
) -> None:
    machine = NvidiaFact(num_devices=1, driver="570.172.08", cuda=cuda)
    torch = TorchBuildFact(path="/env/torch", version=version)
    found = problem("cpu-torch-on-gpu-machine", installed(), machine, torch)
    assert found.remedy.commands == ("envdoctor build --profile cu128",)


@pytest.mark.parametrize(
    ("torch", "word"),
    [
        (TorchBuildFact(path="/t", version="2.9.1+rocm6.4", hip="6.4"), "a ROCm build"),
        (TorchBuildFact(path="/t", version="2.9.1+xpu", xpu="2025"), "an Intel GPU build"),
    ],
)
def test_build_for_another_vendor(torch: TorchBuildFact, word: str) -> None:
    found = problem("cpu-torch-on-gpu-machine", torch, NvidiaFact(num_devices=1), installed())
    assert found.severity is (Severity.WARNING if torch.xpu else Severity.ERROR)
    assert word in found.message


def test_rocm_build_beside_an_amd_gpu_is_left_alone() -> None:
    torch = TorchBuildFact(path="/t", version="2.9.1+rocm6.4", hip="6.4")
    facts = (torch, NvidiaFact(num_devices=1), OtherGpusFact(has_amd=True), installed())
    assert isinstance(outcomes("cpu-torch-on-gpu-machine", *facts)[0], Ok)
