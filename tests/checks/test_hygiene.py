from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from envdoctor.diagnose import diagnose
from envdoctor.verdict import Problem, Severity
from tests.environments import CUDNN, Environment, make_cuda_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return make_cuda_environment(tmp_path / "env")


def problems(environment: Environment) -> list[tuple[str, Problem]]:
    report = diagnose(environment.prefix, expect_gpu=False, variables={})
    return [
        (item.check, item.outcome)
        for item in report.findings
        if isinstance(item.outcome, Problem) and item.outcome.severity is not Severity.INFO
    ]


def leave_requested(environment: Environment, name: str) -> Path:
    folder = environment.site / name
    folder.mkdir()
    (folder / "REQUESTED").write_text("")
    return folder


def leave_metadata(environment: Environment, name: str) -> Path:
    folder = environment.site / name
    folder.mkdir()
    project, _, version = name.removesuffix(".dist-info").partition("-")
    (folder / "METADATA").write_text(f"Name: {project}\nVersion: {version}\n")
    return folder


def leave_copy(environment: Environment, name: str) -> Path:
    folder = environment.site / name
    shutil.copytree(next(environment.site.glob("torch-*.dist-info")), folder)
    text = (folder / "METADATA").read_text()
    version = name.removesuffix(".dist-info").partition("-")[2]
    (folder / "METADATA").write_text(text.replace("2.10.0", version))
    return folder


@pytest.mark.parametrize(
    ("leave", "name"),
    [
        pytest.param(leave_requested, "torch-2.8.0.dist-info", id="only-REQUESTED"),
        pytest.param(leave_metadata, "torch-2.8.0.dist-info", id="no-RECORD"),
        pytest.param(leave_requested, "torch-2.11.0.dist-info", id="sorts-after-the-real-one"),
        pytest.param(leave_copy, "torch-2.8.0.dist-info", id="whole-but-not-what-the-code-says"),
        pytest.param(leave_copy, "torch-2.9.0+cu128.dist-info", id="whole-with-a-local-tag"),
        pytest.param(leave_requested, "nvidia_cudnn_cu12-9.1.0.70.dist-info", id="cudnn"),
        pytest.param(leave_requested, "triton-3.1.0.dist-info", id="triton"),
    ],
)
def test_leftover_beside_the_real_metadata_is_named_and_removed_alone(
    environment: Environment, leave: Callable[[Environment, str], Path], name: str
) -> None:
    folder = leave(environment, name)
    ((check, problem),) = problems(environment)
    assert (check, problem.culprit) == ("duplicate-distribution", name)
    assert problem.severity is Severity.ERROR
    assert problem.remedy.kind == "remove-leftover"
    assert problem.remedy.commands == (f"rm -r {folder}",)


def test_whole_leftover_of_an_older_torch_hides_what_it_alone_would_cause(
    environment: Environment,
) -> None:
    folder = leave_copy(environment, "torch-2.11.0.dist-info")
    text = (folder / "METADATA").read_text()
    (folder / "METADATA").write_text(text.replace("triton==3.6.0", "triton==3.1.0"))
    (folder / "RECORD").write_text("torch/gone.py,sha256=x,1\n")
    os.utime(folder / "RECORD", (4_000_000_000, 4_000_000_000))
    ((check, problem),) = problems(environment)
    assert (check, problem.culprit) == ("duplicate-distribution", "torch-2.11.0.dist-info")


def test_two_whole_copies_that_nothing_tells_apart_are_both_uninstalled(
    environment: Environment,
) -> None:
    environment.install("Ruamel.YAML", "0.18")
    environment.install("ruamel-yaml", "0.17")
    ((check, problem),) = problems(environment)
    assert (check, problem.culprit) == ("duplicate-distribution", "ruamel-yaml")
    assert problem.severity is Severity.WARNING
    assert problem.remedy.kind == "remove-leftover-and-reinstall"
    assert len(problem.remedy.commands) == 3


def test_three_copies_of_torch_leave_one(environment: Environment) -> None:
    leave_requested(environment, "torch-2.7.0.dist-info")
    leave_copy(environment, "torch-2.8.0.dist-info")
    ((_, problem),) = problems(environment)
    assert [command.rpartition("/")[2] for command in problem.remedy.commands] == [
        "torch-2.7.0.dist-info",
        "torch-2.8.0.dist-info",
    ]


def test_folders_of_one_interrupted_uninstall_are_one_finding(environment: Environment) -> None:
    (environment.site / "~orch").mkdir()
    (environment.site / "~orch-2.8.0.dist-info").mkdir()
    ((check, problem),) = problems(environment)
    assert check == "interrupted-uninstall-leftover"
    assert problem.culprit == str(environment.site / "~orch")
    assert problem.severity is Severity.WARNING
    assert problem.remedy.kind == "remove-leftover"
    assert len(problem.remedy.commands) == 2


def test_package_that_the_interruption_left_damaged_is_reinstalled(
    environment: Environment,
) -> None:
    (environment.site / "~vidia_cudnn_cu12-9.1.0.dist-info").mkdir()
    (environment.site / CUDNN).unlink()
    found = dict(problems(environment))
    problem = found["interrupted-uninstall-leftover"]
    assert problem.remedy.kind == "remove-leftover-and-reinstall"
    assert problem.remedy.commands[-1].endswith(" nvidia-cudnn-cu12==9.10.2.21")


@pytest.mark.parametrize(
    ("origin", "is_gone"),
    [
        pytest.param({"url": "{dir}/gone", "dir_info": {"editable": True}}, True, id="gone"),
        pytest.param({"url": "{dir}", "dir_info": {"editable": True}}, False, id="there"),
        pytest.param({"url": "{dir}/my%20src", "dir_info": {"editable": True}}, True, id="quoted"),
        pytest.param({"url": "{dir}/gone", "dir_info": {}}, False, id="not-editable"),
        pytest.param({"url": "{dir}/x.whl", "archive_info": {}}, False, id="a-wheel"),
    ],
)
def test_editable_installation_whose_source_is_gone(
    environment: Environment, origin: dict[str, object], is_gone: bool, tmp_path: Path
) -> None:
    info = environment.install("my-trainer", "0.1")
    text = json.dumps(origin).replace("{dir}", f"file://{tmp_path}")
    (info / "direct_url.json").write_text(text)
    found = problems(environment)
    assert [(check, problem.culprit) for check, problem in found] == (
        [("editable-source-gone", "my-trainer")] if is_gone else []
    )
