from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import PolicyFact
from envdoctor.probes.registry import collect
from envdoctor.probes.subject import Subject
from envdoctor.report import Report
from envdoctor.runner import run
from envdoctor.verdict import Problem, Severity
from tests.environments import Environment, make_cuda_environment, make_environment

if TYPE_CHECKING:
    from pathlib import Path

FORBIDDING = PolicyFact(
    profile="mine",
    torch_version="2.10.0",
    variant="cu128",
    forbid=("sglang*", "my-*"),
    expect_gpu=False,
)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return make_cuda_environment(tmp_path / "env")


def judge(environment: Environment, policy: PolicyFact) -> Report:
    facts = collect(Subject(prefix=environment.prefix, policy=policy))
    return Report(environment={}, findings=run(BUILTIN_CHECKS, facts))


@pytest.mark.parametrize(
    ("name", "requires", "policy", "severity"),
    [
        pytest.param(
            "sglang", [], PolicyFact(expect_gpu=False), Severity.WARNING, id="bundled-list"
        ),
        pytest.param(
            "flashinfer-python",
            ["torch"],
            PolicyFact(expect_gpu=False),
            Severity.WARNING,
            id="holds",
        ),
        pytest.param(
            "vllm", ["torch==2.8.0"], PolicyFact(expect_gpu=False), Severity.ERROR, id="pin-broken"
        ),
        pytest.param(
            "vllm",
            ['torch==2.8.0; platform_system == "Darwin"'],
            PolicyFact(expect_gpu=False),
            Severity.WARNING,
            id="pin-of-another-system",
        ),
        pytest.param("sglang-router", [], FORBIDDING, Severity.ERROR, id="profile-forbids"),
        pytest.param("my-thing", [], FORBIDDING, Severity.ERROR, id="profile-forbids-a-glob"),
    ],
)
def test_stray_package(
    environment: Environment,
    name: str,
    requires: list[str],
    policy: PolicyFact,
    severity: Severity,
) -> None:
    environment.install(name, "0.5.23", {f"{name.replace('-', '_')}/__init__.py": b""}, requires)
    report = judge(environment, policy)
    (problem,) = report.problems()
    assert (problem.culprit, problem.severity) == (name, severity)
    assert report.exit_code == (1 if severity is Severity.ERROR else 0)
    assert problem.remedy.commands[0].endswith(f" {name}")


def test_profile_list_replaces_the_bundled_one(environment: Environment) -> None:
    environment.install("vllm", "0.33.0", {"vllm/__init__.py": b""})
    assert judge(environment, FORBIDDING).problems() == []


@pytest.mark.parametrize("module", ["sglang", "flashinfer", "vllm", "sgl_kernel"])
def test_module_without_its_distribution_is_found(environment: Environment, module: str) -> None:
    (environment.site / module).mkdir()
    (problem,) = judge(environment, PolicyFact(expect_gpu=False)).problems()
    assert problem.culprit == str(environment.site / module)


def test_installed_distribution_owns_its_modules(environment: Environment) -> None:
    environment.install("flashinfer-python", "0.7", {"flashinfer/__init__.py": b""})
    found = [
        item.check
        for item in judge(environment, PolicyFact(expect_gpu=False)).findings
        if isinstance(item.outcome, Problem)
    ]
    assert found == ["stray-package"]


def uninstalled(problem: Problem) -> list[str]:
    return problem.remedy.commands[0].partition("uninstall -y ")[2].split()


def install_sglang(environment: Environment) -> None:
    environment.install(
        "sglang", "0.5.6", requires=["torch", "transformers", "xgrammar", "sgl-kernel==0.3.18"]
    )
    environment.install("sgl-kernel", "0.3.18", requires=["torch"])
    environment.install("xgrammar", "0.1", requires=["ninja", "numpy"])
    environment.install("ninja", "1.11")
    environment.install("numpy", "2.3")
    environment.install("transformers", "5.0", requires=["numpy", "tokenizers"])
    environment.install("tokenizers", "0.22")


def test_what_only_the_stray_brought_in_goes_with_it(environment: Environment) -> None:
    install_sglang(environment)
    (problem,) = judge(environment, PolicyFact(expect_gpu=False)).problems()
    assert problem.culprit == "sglang"
    assert uninstalled(problem) == ["sglang", "sgl-kernel", "ninja", "xgrammar"]
    assert "with sgl-kernel 0.3.18" in problem.message
    assert {item.subject.rpartition("/")[2].partition("-")[0] for item in problem.evidence} == {
        "sglang", "sgl_kernel", "ninja", "xgrammar",
    }  # fmt: skip


def test_what_others_need_or_somebody_asked_for_stays(environment: Environment) -> None:
    install_sglang(environment)
    environment.install("my-trainer", "1.0", requires=['ninja; python_version >= "3.8"'])
    (next(environment.site.glob("xgrammar-*")) / "REQUESTED").write_text("")
    (problem,) = judge(environment, PolicyFact(expect_gpu=False)).problems()
    assert uninstalled(problem) == ["sglang", "sgl-kernel"]


def test_requirements_of_extras_count_only_where_the_extra_is_asked_for(
    environment: Environment,
) -> None:
    environment.install("vllm", "0.20", requires=["torch", "ray[cgraph]", 'x; extra == "audio"'])
    environment.install("ray", "2.0", requires=['cupy; extra == "cgraph"', 'y; extra == "data"'])
    for name in ("cupy", "x", "y"):
        environment.install(name, "1.0")
    (problem,) = judge(environment, PolicyFact(expect_gpu=False)).problems()
    assert uninstalled(problem) == ["vllm", "cupy", "ray"]


def test_orphan_of_two_strays_goes_once(environment: Environment) -> None:
    environment.install("sglang", "0.5", requires=["outlines", "torch"])
    environment.install("vllm", "0.20", requires=["outlines"])
    environment.install("outlines", "0.1")
    found = judge(environment, PolicyFact(expect_gpu=False)).problems()
    names = sorted(name for problem in found for name in uninstalled(problem))
    assert names == ["outlines", "sglang", "vllm"]


def test_packages_that_require_each_other_are_no_endless_loop(environment: Environment) -> None:
    environment.install("sglang", "0.5", requires=["a"])
    environment.install("a", "1", requires=["b"])
    environment.install("b", "1", requires=["a", "sglang"])
    (problem,) = judge(environment, PolicyFact(expect_gpu=False)).problems()
    assert uninstalled(problem) == ["sglang", "a", "b"]


def test_package_that_shares_paths_with_an_orphan_is_reinstalled_after_it(
    environment: Environment,
) -> None:
    environment.install("vllm", "0.20", requires=["nvidia-cudnn-frontend", "nvidia-nccl-cu13"])
    environment.install("nvidia-nccl-cu13", "2.28.9", {"nvidia/nccl/other.h": b""})
    environment.install("nvidia-cudnn-frontend", "1.19")
    found = judge(environment, PolicyFact(expect_gpu=False)).problems()
    problem = next(item for item in found if item.culprit == "vllm")
    assert uninstalled(problem) == ["vllm", "nvidia-cudnn-frontend", "nvidia-nccl-cu13"]
    assert problem.remedy.commands[1].endswith(" nvidia-nccl-cu12==2.27.5")


def test_packages_of_one_kind_are_one_finding(environment: Environment) -> None:
    for name in ("flashinfer-cubin", "flashinfer-jit-cache"):
        environment.install(name, "0.6.11")
    environment.install("flashinfer-python", "0.6.11", requires=["torch"])
    (problem,) = judge(environment, PolicyFact(expect_gpu=False)).problems()
    assert problem.culprit == "flashinfer-python"
    assert len(uninstalled(problem)) == 3


@pytest.mark.parametrize(
    ("forbid", "culprits"),
    [(("nvidia-*",), {"nvidia-cublas"}), (("nvidia-ml-py",), {"nvidia-ml-py"})],
)
def test_module_that_asks_the_driver_is_no_cuda_library(
    tmp_path: Path, forbid: tuple[str, ...], culprits: set[str]
) -> None:
    environment = make_environment(tmp_path / "env")
    environment.install("nvidia-ml-py", "12.575.51")
    environment.install("nvidia-cublas", "13.0.2.14")
    policy = replace(FORBIDDING, forbid=forbid)
    assert {one.culprit for one in strays_of(environment, policy)} == culprits


def strays_of(environment: Environment, policy: PolicyFact) -> list[Problem]:
    found = judge(environment, policy).findings
    outcomes = [one.outcome for one in found if one.check == "stray-package"]
    return [outcome for outcome in outcomes if isinstance(outcome, Problem)]
