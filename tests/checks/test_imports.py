from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import InterpreterFact, PolicyFact
from envdoctor.probes.registry import collect
from envdoctor.probes.subject import Subject
from envdoctor.probes.torch_build import read_torch_build
from envdoctor.runner import run
from envdoctor.verdict import Problem, Severity
from tests.environments import Environment, make_cuda_environment, make_environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CHECKS = ("module-shadowed", "namespace-package-closed", "startup-file-edits-path")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return make_cuda_environment(tmp_path / "env")


def problems(environment: Environment, variables: Mapping[str, str] | None = None) -> list[Problem]:
    policy = PolicyFact(expect_gpu=False)
    subject = Subject(prefix=environment.prefix, variables=variables or {}, policy=policy)
    findings = run([item for item in BUILTIN_CHECKS if item.id in CHECKS], collect(subject))
    return [item.outcome for item in findings if isinstance(item.outcome, Problem)]


def write(path: Path, text: str = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("file", "culprit", "severity"),
    [
        pytest.param("torch.py", "torch.py", Severity.ERROR, id="torch.py"),
        pytest.param("torch/__init__.py", "torch", Severity.ERROR, id="another-torch"),
        pytest.param(
            "torch.cpython-311-x86_64-linux-gnu.so",
            "torch.cpython-311-x86_64-linux-gnu.so",
            Severity.ERROR,
            id="an-extension",
        ),
        pytest.param("triton/__init__.py", "triton", Severity.ERROR, id="another-triton"),
        pytest.param("transformers/__init__.py", "transformers", Severity.WARNING, id="a-checkout"),
    ],
)
def test_module_on_python_path_shadows_an_installed_one(
    environment: Environment, tmp_path: Path, file: str, culprit: str, severity: Severity
) -> None:
    write(environment.site / "transformers/__init__.py")
    write(tmp_path / "shadow" / file)
    path = f"/no/such:{tmp_path}/shadow/:{tmp_path}/work"
    (problem,) = problems(environment, {"PYTHONPATH": path})
    assert problem.culprit == str(tmp_path / "shadow" / culprit)
    assert problem.severity is severity
    assert problem.remedy.kind == "unset-env"
    assert problem.remedy.commands == (f"export PYTHONPATH=/no/such:{tmp_path}/work",)


def test_whole_environment_on_python_path_is_one_finding(
    environment: Environment, tmp_path: Path
) -> None:
    other = make_cuda_environment(tmp_path / "other")
    (problem,) = problems(environment, {"PYTHONPATH": str(other.site)})
    assert problem.culprit == str(other.site / "torch")
    assert "of torch 2.10.0" in problem.message
    assert {item.subject for item in problem.evidence} == {"import torch", "import triton"}
    assert problem.remedy.commands == ("unset PYTHONPATH",)


@pytest.mark.parametrize(
    "file",
    [
        pytest.param("torch/readme.txt", id="a-folder-without-__init__"),
        pytest.param("my_trainer/__init__.py", id="a-module-of-ones-own"),
        pytest.param("nvidia/readme.txt", id="a-part-of-a-namespace"),
    ],
)
def test_what_shadows_nothing(environment: Environment, tmp_path: Path, file: str) -> None:
    write(tmp_path / "shadow" / file)
    assert problems(environment, {"PYTHONPATH": str(tmp_path / "shadow")}) == []


def test_folder_named_torch_is_not_taken_for_the_installed_one(
    environment: Environment, tmp_path: Path
) -> None:
    """Where both folders are of site-packages, as a fault case has it, the whole one counts."""
    write(tmp_path / "checkout/torch/__init__.py")
    policy = PolicyFact(expect_gpu=False)
    facts = collect(Subject(prefix=environment.prefix, variables={}, policy=policy))
    python = facts.need(InterpreterFact)
    sites = (str(tmp_path / "checkout"), *python.site_packages)
    facts = facts.having(dataclasses.replace(python, site_packages=sites))
    subject = Subject(prefix=environment.prefix, variables={}, policy=policy)
    assert read_torch_build(subject, facts).path == f"{environment.site}/torch"


def test_same_folder_through_a_link_shadows_nothing(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(environment.site)
    assert problems(environment, {"PYTHONPATH": str(tmp_path / "link")}) == []


def test_torch_py_where_envdoctor_is_started_is_a_warning(
    environment: Environment, tmp_path: Path
) -> None:
    file = write(tmp_path / "work/torch.py")
    (problem,) = problems(environment)
    assert (problem.culprit, problem.severity) == (str(file), Severity.WARNING)
    assert problems(environment, {"PYTHONSAFEPATH": "1"}) == []


def test_working_folder_that_is_gone_hides_nothing(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "work").rmdir()
    assert problems(environment) == []


def test_user_site_shadows_the_packages_of_a_python_that_is_no_venv(
    environment: Environment, tmp_path: Path
) -> None:
    (environment.prefix / "pyvenv.cfg").unlink()
    user = tmp_path / "home/.local/lib/python3.11/site-packages"
    write(user / "torch/__init__.py")
    write(user / "torch-2.8.0.dist-info/RECORD", "torch/__init__.py,,\n")
    home = {"HOME": str(tmp_path / "home")}
    (problem,) = problems(environment, home)
    assert problem.culprit == str(user / "torch")
    assert problem.remedy.kind == "set-env"
    assert problem.remedy.commands == ("export PYTHONNOUSERSITE=1",)
    assert "uninstall torch there" in problem.remedy.text
    assert problems(environment, {**home, "PYTHONNOUSERSITE": "1"}) == []


def test_user_site_does_not_reach_into_a_venv(environment: Environment, tmp_path: Path) -> None:
    write(tmp_path / "home/.local/lib/python3.11/site-packages/torch/__init__.py")
    assert problems(environment, {"HOME": str(tmp_path / "home")}) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("sitecustomize.py", "import sys\nsys.path.insert(0, '{dir}')\n", id="site"),
        pytest.param("usercustomize.py", "import sys\nsys.path[0:0] = ['{dir}']\n", id="user"),
        pytest.param("zz.pth", "import sys; sys.path.insert(0, '{dir}')\n", id="pth"),
    ],
)
def test_startup_file_that_inserts_a_shadow_is_named_and_never_run(
    environment: Environment, tmp_path: Path, name: str, text: str
) -> None:
    write(tmp_path / "shadow/torch.py", "raise SystemExit('imported')\n")
    file = write(environment.site / name, text.replace("{dir}", f"{tmp_path}/shadow"))
    (problem,) = problems(environment)
    assert problem.culprit == str(tmp_path / "shadow/torch.py")
    assert str(file) in problem.message
    assert problem.remedy.commands == (f"mv {file} {file}.off",)


@pytest.mark.parametrize(
    ("name", "text", "severities"),
    [
        pytest.param("zz.pth", "{dir}\n", [], id="pth-that-lists-a-folder"),
        pytest.param("zz.pth", "# sys.path.insert(0, x)\n", [], id="comment"),
        pytest.param("zz.pth", "import _virtualenv\n", [], id="pth-of-virtualenv"),
        pytest.param("sitecustomize.py", "import os\n", [], id="harmless-sitecustomize"),
        pytest.param(
            "sitecustomize.py",
            "import sys, os\nsys.path.insert(0, os.environ['X'])\n",
            [Severity.INFO],
            id="folder-that-cannot-be-told",
        ),
    ],
)
def test_startup_file_that_hides_nothing(
    environment: Environment, tmp_path: Path, name: str, text: str, severities: list[Severity]
) -> None:
    write(tmp_path / "shadow/torch.py")
    write(environment.site / name, text.replace("{dir}", f"{tmp_path}/shadow"))
    assert [problem.severity for problem in problems(environment)] == severities


def overlay_with_owner(folder: Path) -> Path:
    write(folder / "cuda/__init__.py", "from cuda import _version\n")
    write(folder / "cuda_python-12.6.0.dist-info/RECORD", "cuda/__init__.py,sha256=x,1\n")
    return folder


@pytest.mark.parametrize("text", ["from cuda import x\n", "", "# a comment\n"])
def test_init_in_an_earlier_folder_hides_the_parts_of_others(
    environment: Environment, tmp_path: Path, text: str
) -> None:
    environment.install("cuda-bindings", "13.0.3", {"cuda/bindings/__init__.py": b""})
    overlay = overlay_with_owner(tmp_path / "overlay")
    write(overlay / "cuda/__init__.py", text)
    (problem,) = problems(environment, {"PYTHONPATH": str(overlay)})
    assert (problem.culprit, problem.severity) == ("cuda-python", Severity.ERROR)
    assert problem.remedy.kind == "remove-or-upgrade-package"
    assert str(environment.site / "cuda") in problem.message


def test_init_of_nobody_is_taken_off_the_path(environment: Environment, tmp_path: Path) -> None:
    environment.install("cuda-bindings", "13.0.3", {"cuda/bindings/__init__.py": b""})
    file = write(tmp_path / "overlay/cuda/__init__.py")
    (problem,) = problems(environment, {"PYTHONPATH": str(tmp_path / "overlay")})
    assert (problem.culprit, problem.severity) == (str(file), Severity.ERROR)
    assert problem.remedy.kind == "unset-env"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n", "a"),
        pytest.param("__import__('pkg_resources').declare_namespace(__name__)\n", "b"),
    ],
)
def test_init_that_declares_a_namespace_hides_nothing(
    environment: Environment, tmp_path: Path, text: str, path: str
) -> None:
    environment.install("cuda-bindings", "13.0.3", {"cuda/bindings/__init__.py": b""})
    write(tmp_path / path / "cuda/__init__.py", text)
    assert problems(environment, {"PYTHONPATH": str(tmp_path / path)}) == []


@pytest.mark.parametrize(
    ("requires", "command"),
    [
        pytest.param([], "uninstall -y cuda-python", id="nobody-needs-it"),
        pytest.param(["cuda-python>=12"], "--upgrade cuda-python", id="somebody-needs-it"),
    ],
)
def test_init_beside_the_parts_of_others_is_a_warning(
    environment: Environment, requires: list[str], command: str
) -> None:
    environment.install("cuda-bindings", "13.0.3", {"cuda/bindings/__init__.py": b""}, requires)
    environment.install("cuda-python", "12.6.0", {"cuda/__init__.py": b"from cuda import x\n"})
    (problem,) = problems(environment)
    assert (problem.culprit, problem.severity) == ("cuda-python", Severity.WARNING)
    assert problem.remedy.kind == "remove-or-upgrade-package"
    assert problem.remedy.commands[0].endswith(command)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        pytest.param(
            "cuda-python", {"cuda/__init__.py": b"x = 1\n"}, id="one-owner-of-all-of-cuda"
        ),
        pytest.param("nvidia-nvtx-cu12", {"nvidia/__init__.py": b""}, id="empty-as-in-cu12-wheels"),
    ],
)
def test_init_that_is_normal(environment: Environment, name: str, files: dict[str, bytes]) -> None:
    environment.install(name, "12.6.0", files)
    assert problems(environment) == []


def test_nvidia_init_with_code_is_a_warning(environment: Environment) -> None:
    environment.install("nvidia-odd", "1.0", {"nvidia/__init__.py": b"import os\n"})
    (problem,) = problems(environment)
    assert (problem.culprit, problem.severity) == ("nvidia-odd", Severity.WARNING)


def test_nvidia_init_on_python_path_is_an_error(environment: Environment, tmp_path: Path) -> None:
    write(tmp_path / "shadow/nvidia/__init__.py", "")
    (problem,) = problems(environment, {"PYTHONPATH": str(tmp_path / "shadow")})
    assert problem.severity is Severity.ERROR
    assert problem.culprit == str(tmp_path / "shadow/nvidia/__init__.py")


def test_empty_init_of_a_venv_above_the_systems_is_normal(tmp_path: Path) -> None:
    base = make_environment(tmp_path / "base")
    base.install("nvidia-nccl-cu12", "2.27.5", {"nvidia/nccl/__init__.py": b""})
    environment = make_cuda_environment(tmp_path / "env")
    (environment.prefix / "pyvenv.cfg").write_text(
        f"home = {base.prefix}/bin\nversion = 3.11.7\ninclude-system-site-packages = true\n"
    )
    write(environment.site / "nvidia/__init__.py", "")
    assert problems(environment) == []
