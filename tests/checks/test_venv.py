from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from envdoctor.facts import (
    CondaFact,
    Distribution,
    DistributionsFact,
    OpenMpFact,
    VariablesFact,
)
from envdoctor.verdict import Ok, Problem, Severity, Skipped
from tests.checks.test_agreement import outcomes, problem
from tests.checks.test_hygiene import problems
from tests.environments import Environment, make_cuda_environment

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return make_cuda_environment(tmp_path / "env")


def lead_to(environment: Environment, target: Path) -> None:
    python = environment.prefix / "bin/python"
    python.unlink()
    python.symlink_to(target)


def test_python_that_is_gone_means_a_new_environment(
    environment: Environment, tmp_path: Path
) -> None:
    lead_to(environment, tmp_path / "gone/python3.11")
    ((check, found),) = problems(environment)
    assert check == "venv-python-gone"
    assert found.culprit == str(tmp_path / "gone/python3.11")
    assert found.remedy.kind == "recreate-venv"


def test_python_that_was_never_there(environment: Environment) -> None:
    (environment.prefix / "bin/python").unlink()
    ((check, found),) = problems(environment)
    assert (check, found.culprit) == ("venv-python-gone", "bin/python")


def test_links_in_a_circle_are_a_finding_and_no_hang(environment: Environment) -> None:
    lead_to(environment, environment.prefix / "bin/python3")
    (environment.prefix / "bin/python3").symlink_to("python")
    assert [check for check, _ in problems(environment)] == ["venv-python-gone"]


def test_python_of_another_version_does_not_see_the_packages(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "python3.12").write_bytes(b"")
    lead_to(environment, tmp_path / "python3.12")
    ((check, found),) = problems(environment)
    assert (check, found.remedy.kind) == ("venv-python-changed", "recreate-venv")
    assert "3.12" in found.message


def test_python_of_the_right_version(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "python3.11").write_bytes(b"")
    lead_to(environment, tmp_path / "python3.11")
    assert problems(environment) == []


SHEBANGS = [
    pytest.param("#!{python}\nimport sys\n", id="pip-and-uv"),
    pytest.param("#! {python} -I\n", id="space-and-option"),
    pytest.param("#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n", id="long-path"),
    pytest.param("#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n", id="long-path-unquoted"),
]


@pytest.mark.parametrize("text", SHEBANGS)
def test_scripts_of_a_moved_environment_are_one_finding(
    environment: Environment, tmp_path: Path, text: str
) -> None:
    for name in ("pip", "torchrun"):
        script = text.format(python=tmp_path / "old/bin/python")
        (environment.prefix / "bin" / name).write_text(script)
    ((check, found),) = problems(environment)
    assert check == "scripts-start-another-python"
    assert found.severity is Severity.WARNING
    assert found.culprit == str(environment.prefix / "bin/pip")
    assert "2 of 2 scripts" in found.message


@pytest.mark.parametrize("text", SHEBANGS)
def test_scripts_of_this_environment(environment: Environment, text: str) -> None:
    script = text.format(python=environment.prefix / "bin/python3")
    (environment.prefix / "bin/pip").write_text(script)
    assert problems(environment) == []


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"#!/bin/sh\nexec something\n", id="shell"),
        pytest.param(b"#!/usr/bin/env python3\n", id="env"),
        pytest.param(b"\x7fELF\x02", id="a-program"),
        pytest.param(b"", id="empty"),
        pytest.param(b"#!\n", id="nothing-named"),
        pytest.param(b"#!/bin/sh\n'''exec' \"$(dirname -- \"$0\")\"/'python' \"$0\"\n", id="moves"),
    ],
)
def test_scripts_that_name_no_python(environment: Environment, content: bytes) -> None:
    (environment.prefix / "bin/tool").write_bytes(content)
    assert problems(environment) == []


def test_one_script_of_another_place_is_a_note(environment: Environment, tmp_path: Path) -> None:
    own = environment.prefix / "bin"
    for name in ("pip", "torchrun", "isympy"):
        (own / name).write_text(f"#!{own}/python\n")
    (own / "left").write_text(f"#!{tmp_path}/gone/python3\n")
    found = _found(environment, {}, "scripts-start-another-python")
    assert isinstance(found, Problem)
    assert found.severity is Severity.INFO
    assert "moved" not in found.message


def test_scripts_of_a_copied_environment_are_a_note(environment: Environment) -> None:
    (environment.prefix / "bin/pip").write_text(f"#!{sys.executable}\n")
    assert problems(environment) == []
    found = _found(environment, {}, "scripts-start-another-python")
    assert isinstance(found, Problem)
    assert found.severity is Severity.INFO


def _found(environment: Environment, variables: dict[str, str], check: str) -> object:
    from envdoctor.diagnose import diagnose  # noqa: PLC0415

    report = diagnose(environment.prefix, expect_gpu=False, variables=variables)
    return next(item.outcome for item in report.findings if item.check == check)


def put_launcher(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("name", ["torchrun", "python", "python3"])
def test_launcher_of_another_python_on_path_of_the_active_environment(
    environment: Environment, tmp_path: Path, name: str
) -> None:
    file = put_launcher(tmp_path / "home/.local/bin", name, "#!/usr/bin/python3\n")
    active = {
        "VIRTUAL_ENV": str(environment.prefix),
        "PATH": f"/no/such:{file.parent}:{environment.prefix}/bin",
    }
    found = _found(environment, active, "launcher-of-another-python")
    assert isinstance(found, Problem)
    assert (found.culprit, found.severity) == (str(file), Severity.ERROR)
    assert found.remedy.kind == "use-venv-launcher"


@pytest.mark.parametrize(
    ("name", "active", "first"),
    [
        pytest.param("torchrun", False, True, id="not-the-active-environment"),
        pytest.param("torchrun", True, False, id="own-launcher-comes-first"),
        pytest.param("accelerate", True, True, id="tool-that-is-not-installed"),
        pytest.param("pip", True, True, id="environment-without-pip"),
    ],
)
def test_launcher_that_is_nobodys_problem(
    environment: Environment, tmp_path: Path, name: str, active: bool, first: bool
) -> None:
    other = put_launcher(tmp_path / "other", name, "#!/usr/bin/python3\n").parent
    own = environment.prefix / "bin"
    put_launcher(own, name, f"#!{own}/python\n")
    folders = [other, own] if first else [own, other]
    if name in {"pip", "accelerate"}:
        (own / name).unlink()
    variables = {"PATH": ":".join(map(str, folders))}
    variables |= {"VIRTUAL_ENV": str(environment.prefix)} if active else {}
    assert isinstance(_found(environment, variables, "launcher-of-another-python"), Ok)


def test_python_home_keeps_a_venv_from_its_packages(environment: Environment) -> None:
    found = _found(environment, {"PYTHONHOME": "/usr"}, "python-home-set")
    assert isinstance(found, Problem)
    assert found.remedy.commands == ("unset PYTHONHOME",)


def test_torch_of_pip_over_that_of_conda(environment: Environment) -> None:
    meta = environment.prefix / "conda-meta"
    meta.mkdir()
    for name in (
        "pytorch-2.5.1-py3.11_cuda12.4_cudnn9_0.json",
        "numpy-2.0-py311_0.json",
        "history",
    ):
        (meta / name).write_text("{}")
    ((check, found),) = problems(environment)
    assert (check, found.severity) == ("torch-of-conda-and-pip", Severity.WARNING)
    assert "pytorch 2.5.1" in found.message
    assert "numpy" not in found.message


@pytest.mark.parametrize("installer", ["conda", ""])
def test_torch_of_conda_alone(installer: str) -> None:
    torch = Distribution(name="torch", version="2.5.1", path="/env/t", installer=installer)
    facts = DistributionsFact(distributions=(torch,))
    (found,) = outcomes(
        "torch-of-conda-and-pip", facts, CondaFact(packages=(("pytorch", "2.5.1"),))
    )
    assert isinstance(found, Ok)


@pytest.mark.parametrize(
    ("libraries", "silenced", "expected"),
    [
        pytest.param(("/e/torch/lib/libgomp.so.1",), False, Ok, id="one"),
        pytest.param(
            ("/e/torch/lib/libgomp-a34.so.1", "/e/numpy.libs/libgomp-d22.so.1.0.0"),
            False,
            Ok,
            id="two-of-one-kind",
        ),
        pytest.param(("/e/lib/libiomp5.so",), False, Ok, id="intel-alone"),
        pytest.param(
            ("/e/lib/libiomp5.so", "/e/torch/lib/libgomp.so.1"), False, Severity.INFO, id="both"
        ),
        pytest.param(
            ("/e/lib/libomp.so", "/e/torch/lib/libgomp.so.1"), False, Severity.INFO, id="llvm"
        ),
        pytest.param(
            ("/e/lib/libiomp5.so", "/e/torch/lib/libgomp.so.1"), True, Severity.WARNING, id="hidden"
        ),
    ],
)
def test_two_openmp_runtimes(
    libraries: tuple[str, ...], *, silenced: bool, expected: object
) -> None:
    values = (("KMP_DUPLICATE_LIB_OK", "TRUE"),) if silenced else ()
    (found,) = outcomes(
        "two-openmp-runtimes", OpenMpFact(libraries=libraries), VariablesFact(values=values)
    )
    assert (found.severity if isinstance(found, Problem) else type(found)) == expected


def test_openmp_runtimes_are_found_where_wheels_put_them(environment: Environment) -> None:
    for path in ("torch/lib/libgomp.so.1", "numpy.libs/libgomp-1.so", "torch/lib/libgomplex.so"):
        file = environment.site / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"")
    (environment.prefix / "lib/libiomp5.so").write_bytes(b"")
    found = _found(environment, {}, "two-openmp-runtimes")
    assert isinstance(found, Problem)
    assert found.culprit == str(environment.prefix / "lib/libiomp5.so")


def test_openmp_variable_is_read(environment: Environment) -> None:
    (environment.site / "torch/lib/libgomp.so.1").write_bytes(b"")
    (environment.prefix / "lib/libiomp5.so").write_bytes(b"")
    variables = {"KMP_DUPLICATE_LIB_OK": "TRUE"}
    found = _found(environment, variables, "two-openmp-runtimes")
    assert isinstance(found, Problem)
    assert found.severity is Severity.WARNING


def test_facts_of_other_checks_do_not_matter() -> None:
    torch = Distribution(name="torch", version="2.5.1", path="/env/t", installer="pip")
    facts = DistributionsFact(distributions=(torch,))
    conda = CondaFact(packages=(("libtorch", "2.5.1"),))
    assert problem("torch-of-conda-and-pip", facts, conda).culprit == "torch"


@pytest.mark.parametrize(
    "check", ["venv-python-gone", "venv-python-changed", "scripts-start-another-python"]
)
def test_python_that_is_no_venv_has_no_ties(environment: Environment, check: str) -> None:
    (environment.prefix / "pyvenv.cfg").unlink()
    assert isinstance(_found(environment, {}, check), Skipped)
