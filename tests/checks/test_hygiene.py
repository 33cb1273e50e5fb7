from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.diagnose import diagnose
from envdoctor.verdict import Problem, Severity
from tests.environments import make_cuda_environment

if TYPE_CHECKING:
    from pathlib import Path


def test_two_dist_infos_of_one_name_are_an_error_for_torch(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    environment.install("torch", "2.9.1")
    report = diagnose(environment.prefix, expect_gpu=False)
    found = {item.check: item.outcome for item in report.findings}
    problem = found["duplicate-distribution"]
    assert isinstance(problem, Problem)
    assert problem.culprit == "torch"
    assert problem.severity is Severity.ERROR
    assert {item.found for item in problem.evidence} == {"2.10.0", "2.9.1"}


def test_names_that_normalise_alike_are_one_distribution(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    environment.install("Ruamel.YAML", "0.18")
    environment.install("ruamel-yaml", "0.17")
    problems = diagnose(environment.prefix, expect_gpu=False).problems()
    assert [(problem.culprit, problem.severity) for problem in problems] == [
        ("ruamel-yaml", Severity.WARNING)
    ]


def test_folder_of_an_interrupted_uninstall_is_a_warning(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    (environment.site / "~orch").mkdir()
    report = diagnose(environment.prefix, expect_gpu=False)
    (problem,) = report.problems()
    assert problem.culprit == str(environment.site / "~orch")
    assert problem.severity is Severity.WARNING
    assert report.exit_code == 0
