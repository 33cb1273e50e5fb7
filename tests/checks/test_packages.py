from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from envdoctor.diagnose import diagnose
from envdoctor.facts import Distribution, DistributionsFact
from envdoctor.verdict import Problem, Severity
from tests.checks.test_agreement import outcomes
from tests.environments import CUDNN, NCCL, Environment, make_cuda_environment

if TYPE_CHECKING:
    from pathlib import Path


def errors(environment: Environment) -> list[tuple[str, Problem]]:
    report = diagnose(environment.prefix, expect_gpu=False)
    return [
        (finding.check, finding.outcome)
        for finding in report.findings
        if isinstance(finding.outcome, Problem) and finding.outcome.severity is not Severity.INFO
    ]


@pytest.fixture
def cuda_environment(tmp_path: Path) -> Environment:
    return make_cuda_environment(tmp_path / "env")


def test_healthy_environment_has_no_problem(cuda_environment: Environment) -> None:
    assert errors(cuda_environment) == []


def test_required_package_that_is_absent_is_named_with_its_pin(
    cuda_environment: Environment,
) -> None:
    shutil.rmtree(next(cuda_environment.site.glob("nvidia_nccl*.dist-info")))
    (cuda_environment.site / NCCL).unlink()
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("required-package-missing", "nvidia-nccl-cu12")
    assert problem.remedy.commands[0].endswith(" nvidia-nccl-cu12==2.27.5")


@pytest.mark.parametrize(
    ("absent", "severity"),
    [
        pytest.param({"cuda-bindings"}, Severity.WARNING, id="python-alone"),
        pytest.param({"cuda-toolkit", "cuda-bindings"}, Severity.WARNING, id="no-file"),
        pytest.param({"cuda-bindings", "nvidia-nccl-cu13"}, Severity.ERROR, id="with-a-library"),
    ],
)
def test_absent_package_without_libraries_is_a_warning(
    absent: set[str], severity: Severity
) -> None:
    pins = ("cuda-toolkit==13.0.2", "cuda-bindings<14,>=13.0.3", "nvidia-nccl-cu13==2.28.9")
    torch = Distribution(
        name="torch", version="2.11.0", path="/env/torch-2.11.0.dist-info", requires=pins
    )
    others = {"cuda-toolkit": "13.0.2", "cuda-bindings": "13.0.3", "nvidia-nccl-cu13": "2.28.9"}
    dists = tuple(
        Distribution(name=name, version=version, path=f"/env/{name}.dist-info")
        for name, version in others.items()
        if name not in absent
    )
    (found,) = outcomes(
        "required-package-missing", DistributionsFact(distributions=(torch, *dists))
    )
    assert isinstance(found, Problem)
    assert found.severity is severity
    assert set(found.culprit.split(", ")) == absent


def test_version_that_is_not_the_pin_is_named(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    shutil.rmtree(next(environment.site.glob("triton*.dist-info")))
    environment.install("triton", "3.9.0", {"triton/__init__.py": b""})
    ((check, problem),) = errors(environment)
    assert (check, problem.culprit) == ("package-version-not-pinned", "triton")
    assert "3.9.0" in problem.message
    assert "triton==3.6.0" in problem.remedy.commands[0]


def test_placeholder_is_one_finding_that_installs_the_pin(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    shutil.rmtree(next(environment.site.glob("nvidia_cudnn*.dist-info")))
    (environment.site / CUDNN).unlink()
    environment.install("nvidia-cudnn-cu12", "0.0.1.dev5")
    ((check, problem),) = errors(environment)
    assert (check, problem.culprit) == ("package-without-libraries", "nvidia-cudnn-cu12")
    assert problem.remedy.commands[0].endswith(" nvidia-cudnn-cu12==9.10.2.21")


def test_package_of_headers_alone_is_no_placeholder(tmp_path: Path) -> None:
    """As nvidia-cuda-cccl, which cuda-toolkit 13.2 brings."""
    environment = make_cuda_environment(tmp_path / "env")
    shutil.rmtree(next(environment.site.glob("nvidia_cudnn*.dist-info")))
    (environment.site / CUDNN).unlink()
    headers = {f"nvidia/cudnn/include/part_{n}.h": b"" for n in range(30)}
    environment.install("nvidia-cudnn-cu12", "9.10.2.21", headers)
    assert "package-without-libraries" not in {check for check, _ in errors(environment)}


def test_pins_are_followed_through_the_toolkit_package(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    metadata = next(environment.site.glob("torch*.dist-info")) / "METADATA"
    metadata.write_text(
        "Name: torch\nVersion: 2.11.0\nRequires-Dist: cuda-toolkit[cublas]==13.0.2\n"
    )
    environment.install(
        "cuda-toolkit",
        "13.0.2",
        requires=[
            'nvidia-cublas==13.1.0.3; extra == "cublas"',
            'nvidia-cufft==12.0.0.61; extra == "cufft"',
        ],
    )
    names = [problem.culprit for _, problem in errors(environment)]
    assert "nvidia-cublas" in names
    assert "nvidia-cufft" not in names
