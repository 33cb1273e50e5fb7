"""Profiles that extend others."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor import inheritance, profile
from envdoctor.errors import UserFileError
from envdoctor.toml_text import document
from tests.workbench import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BASE = """
schema = 1
name = "base"
description = "of the base"
[torch]
version = "2.10.0"
variant = "cu128"
arch = ["sm_80", "sm_90"]
[sources]
wheelhouse = ["w"]
[packages]
require = ["numpy==2.0", "My_Pkg>=1"]
forbid = ["vllm*"]
[check]
imports = ["torch"]
[env]
set = { A = "1", B = "2" }
"""
CHILD = """
extends = "base.toml"
name = "child"
[torch]
arch = ["sm_100"]
[packages]
require = ["my-pkg==3", "einops==0.8"]
forbid = ["sglang*", "vllm*"]
[check]
imports = ["einops"]
[env]
set = { B = "3" }
"""


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    return folder / f"{list(texts)[-1]}.toml"


def refusal(path: Path) -> str:
    with pytest.raises(UserFileError) as caught:
        profile.load_profile(str(path))
    return caught.value.message


def test_child_is_laid_over_its_parent(tmp_path: Path) -> None:
    found = profile.load_profile(str(write(tmp_path, base=BASE, child=CHILD)))
    assert (found.name, found.description, found.extends) == ("child", "", "base.toml")
    assert (found.torch.version, found.torch.arch) == ("2.10.0", ("sm_100",))
    assert found.packages.require == ("numpy==2.0", "my-pkg==3", "einops==0.8")
    assert found.packages.forbid == ("vllm*", "sglang*")
    assert found.check.imports == ("torch", "einops")
    assert found.env.set == {"A": "1", "B": "3"}
    assert found.sources.wheelhouse == (str(tmp_path / "w"),)


def test_bundled_profile_can_be_extended_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, mine='extends = "cu128"\nname = "mine"\n[packages]\nrequire = ["x==1"]')
    base, mine = profile.load_profile("cu128"), profile.load_profile(str(path))
    assert mine.packages.require == (*base.packages.require, "x==1")
    assert mine.torch == base.torch
    assert mine.index == base.index


def test_folders_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    write(tmp_path / "far", base=BASE)
    child = 'extends = "far/base.toml"\nname = "c"\n'
    assert profile.load_profile(str(write(tmp_path, c=child))).sources.wheelhouse == (
        str(tmp_path / "far/w"),
    )
    own = f'{child}[sources]\nwheelhouse = ["w"]\n'
    assert profile.load_profile(str(write(tmp_path, c=own))).sources.wheelhouse == (
        str(tmp_path / "w"),
    )


def test_grandparents_count(tmp_path: Path) -> None:
    path = write(tmp_path, base=BASE, child=CHILD, last='extends = "child.toml"\nname = "last"')
    assert profile.load_profile(str(path)).packages.require[-1] == "einops==0.8"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        pytest.param({"x": 'extends = "cu999"\nname = "x"'}, ["x.toml: extends", "'cu999'"],
                     id="unknown-name"),
        pytest.param({"x": 'extends = "gone.toml"\nname = "x"'}, ["'gone.toml'"], id="no-file"),
        pytest.param({"x": 'extends = "./x.toml"\nname = "x"'}, ["circle"], id="itself"),
        pytest.param({"y": 'extends = "x.toml"', "x": 'extends = "y.toml"'}, ["circle"],
                     id="circle"),
        pytest.param({"x": 'extends = 3\nname = "x"'}, ["extends: found 3"], id="no-text"),
        pytest.param({"base": BASE, "x": 'extends = "base.toml"'}, ["x.toml: name: missing"],
                     id="no-name-of-its-own"),
        pytest.param({"base": BASE + "[gpus]\n", "x": 'extends = "base.toml"\nname = "x"'},
                     ["base.toml: gpus: unknown key"], id="parent-not-valid"),
        pytest.param({"x": 'extend = "cu128"\nname = "x"'}, ["extend", "did you mean extends?"],
                     id="near-name"),
    ],
)  # fmt: skip
def test_wrong_parent_is_named(tmp_path: Path, texts: dict[str, str], words: list[str]) -> None:
    message = refusal(write(tmp_path, **texts))
    assert all(word in message for word in words), message


scalars = st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
tables: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["name", "packages", "require", "forbid", "check", "imports", "x"]),
    st.recursive(
        scalars | st.lists(scalars, max_size=3),
        lambda inner: st.dictionaries(
            st.sampled_from(["require", "forbid", "imports", "x"]), inner, max_size=3
        ),
        max_leaves=6,
    ),
    max_size=4,
)


@given(tables, tables)
def test_any_tables_can_be_merged_and_what_is_on_top_holds(
    base: dict[str, Any], own: dict[str, Any]
) -> None:
    found = inheritance.merged(base, own)
    assert set(found) == (set(base) - {"name"}) | set(own)
    for key, value in own.items():
        if not isinstance(value, dict | list):
            assert found[key] == value
    assert inheritance.merged(found, {}) == {k: v for k, v in found.items() if k != "name"}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
values = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(texts, values, max_size=4))
def test_any_document_reads_back(data: dict[str, Any]) -> None:
    assert tomllib.loads(document(data)) == data


def envdoctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "envdoctor", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("name", profile.known_names())
def test_shown_profile_is_the_profile(name: str, tmp_path: Path) -> None:
    shown = tmp_path / "shown.toml"
    shown.write_text(envdoctor("profiles", "show", name).stdout)
    assert profile.load_profile(str(shown)) == profile.load_profile(name)


def test_shown_profile_holds_what_it_inherits_and_no_password(tmp_path: Path) -> None:
    index = '[[index]]\nname = "i"\ndefault = true\nurl = "https://u:hunter2@h.example/s"\n'
    path = write(tmp_path, base=BASE, child=CHILD + index)
    found = json.loads(envdoctor("profiles", "show", str(path), "--format", "json").stdout)
    assert found["packages"]["require"][0] == "numpy==2.0"
    assert "hunter2" not in json.dumps(found)
    assert found["extends"] == ""
    assert msgspec.convert(found, profile.Profile).name == "child"


def test_profiles_are_listed_and_validated(tmp_path: Path) -> None:
    names = [line.split()[0] for line in envdoctor("profiles").stdout.splitlines()]
    assert names == profile.known_names() == sorted(names)
    assert envdoctor("profiles", "list").stdout == envdoctor("profiles").stdout
    assert len(envdoctor("profiles", "validate").stdout.splitlines()) == len(names)
    good, bad = write(tmp_path, base=BASE), tmp_path / "bad.toml"
    bad.write_text(BASE.replace("arch", "archs").replace('"vllm*"', "1"))
    done = envdoctor("profiles", "validate", str(bad), str(good))
    assert done.returncode == 2
    assert done.stdout == f"{good}: valid, base with torch 2.10.0 cu128\n"
    assert "archs: unknown key; did you mean torch.arch?" in done.stderr
    assert "packages.forbid" in done.stderr


def test_profile_that_overlooks_an_unknown_check_is_not_valid(tmp_path: Path) -> None:
    ignore = '[[check.ignore]]\nid = "no-such-check"\nreason = "r"\n'
    text = BASE.replace("[env]", f"{ignore}[env]")
    done = envdoctor("profiles", "validate", str(write(tmp_path, base=text)))
    assert done.returncode == 2
    assert "no-such-check" in done.stderr
