from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import PolicyFact
from envdoctor.probes import collect
from envdoctor.probes.subject import Subject
from envdoctor.report import Report
from envdoctor.runner import run
from envdoctor.verdict import Problem, Severity
from tests.environments import Environment, make_cuda_environment

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
