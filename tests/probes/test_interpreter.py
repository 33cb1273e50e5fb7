from __future__ import annotations

import sys
import venv
from typing import TYPE_CHECKING

import pytest

from envdoctor.errors import UsageError
from envdoctor.facts import FactSet
from envdoctor.probes.interpreter import (
    checked_prefix,
    prefix_of_python,
    read_interpreter,
    running_prefix,
)
from envdoctor.probes.subject import Subject
from tests.environments import make_environment

if TYPE_CHECKING:
    from pathlib import Path


def read(prefix: Path) -> tuple[str, bool, tuple[str, ...]]:
    fact = read_interpreter(Subject(prefix=prefix), FactSet([]))
    return fact.version, fact.is_venv, fact.site_packages


def test_real_venv(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    version, is_venv, (site,) = read(tmp_path / "env")
    assert version == ".".join(map(str, sys.version_info[:3]))
    assert is_venv
    assert site.startswith(str(tmp_path / "env/lib"))


def test_venv_is_found_from_its_python_though_that_is_a_link(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    assert prefix_of_python(str(tmp_path / "env/bin/python")) == tmp_path / "env"


def test_system_packages_follow_those_of_the_venv(tmp_path: Path) -> None:
    base = make_environment(tmp_path / "base")
    (tmp_path / "base/pyvenv.cfg").unlink()
    environment = make_environment(tmp_path / "env")
    (environment.prefix / "pyvenv.cfg").write_text(
        f"home = {base.prefix}/bin\nversion = 3.11.7\nInclude-System-Site-Packages = TRUE\n"
    )
    assert read(environment.prefix)[2] == (str(environment.site), str(base.site))


def test_lib64_that_links_to_lib_is_one_folder(tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env")
    (environment.prefix / "lib64").symlink_to("lib")
    assert read(environment.prefix)[2] == (str(environment.site),)


def test_running_environment_is_an_environment() -> None:
    assert read(running_prefix())[0] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda path: None, "no such folder", id="absent"),
        pytest.param(lambda path: path.write_text("x"), "it is a file", id="a-file"),
        pytest.param(lambda path: path.mkdir(), "no Python environment", id="an-empty-folder"),
    ],
)
def test_prefix_that_is_no_environment(tmp_path: Path, make: object, says: str) -> None:
    assert callable(make)
    make(tmp_path / "x")
    with pytest.raises(UsageError, match=says):
        checked_prefix(tmp_path / "x")


@pytest.mark.parametrize("python", ["no-such-command-here", "./no/such/python"])
def test_python_that_is_absent(python: str) -> None:
    with pytest.raises(UsageError, match="no such interpreter"):
        prefix_of_python(python)


def test_python_that_is_a_script(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexec python3\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(UsageError, match="is a script"):
        prefix_of_python(str(tmp_path / "python"))
