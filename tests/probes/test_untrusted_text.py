"""Property tests: whatever a file of an environment holds, its reader answers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import FactSet, InterpreterFact
from envdoctor.probes.cache_entries import read_inductor_entries, read_triton_entries
from envdoctor.probes.companions import (
    cuda_of_local_tag,
    parse_xformers_build,
    read_companion_builds,
)
from envdoctor.probes.distributions import editable_target, read_distributions
from envdoctor.probes.extensions import read_extensions, tag_of
from envdoctor.probes.imports import init_text
from envdoctor.probes.startup_files import find_startup_files
from envdoctor.probes.subject import Subject
from envdoctor.probes.torch_build import parse_variant
from envdoctor.probes.venv import read_launcher

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=300)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["url", "dir_info", "editable", "variants", "version", "torch", "cuda"])
            | st.text(max_size=8),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
HERE = Subject(prefix=Path("/nowhere"))


@given(ANY_TEXT | JSON.map(json.dumps))
def test_direct_url_of_any_text(text: str) -> None:
    path = editable_target(text)
    assert path == "" or path.startswith("/")
    assert "\0" not in path


@given(st.text(st.characters(categories=["L", "N", "Zs"]), max_size=20))
def test_direct_url_as_installers_write_it(name: str) -> None:
    url = Path("/src", name).as_uri()
    text = json.dumps({"url": url, "dir_info": {"editable": True}})
    assert editable_target(text) == str(Path("/src", name))


@given(ANY_TEXT | JSON.map(json.dumps))
def test_variant_of_any_text(text: str) -> None:
    assert all(" :: " in item for item in parse_variant(text))


def test_variant_as_the_draft_writes_it() -> None:
    variants = {"cu128": {"nvidia": {"cuda_version_lower_bound": ["12.8"], "sm_arch": ["90_real"]}}}
    assert parse_variant(json.dumps({"variants": variants})) == (
        "nvidia :: cuda_version_lower_bound :: 12.8",
        "nvidia :: sm_arch :: 90_real",
    )


@given(ANY_TEXT | JSON.map(json.dumps))
def test_xformers_build_of_any_text(text: str) -> None:
    build = parse_xformers_build("/x", text)
    assert isinstance(build.torch, str)
    assert isinstance(build.cuda, str)


def test_xformers_build_as_it_writes_it() -> None:
    version = {"cuda": 1208, "hip": None, "torch": "2.9.0+cu128", "python": "3.10.19"}
    build = parse_xformers_build("/x", json.dumps({"version": version, "env": {}}))
    assert (build.torch, build.cuda) == ("2.9.0+cu128", "12.8")


@pytest.mark.parametrize(
    ("tag", "cuda"),
    [("cu128", "12.8"), ("cu130", "13.0"), ("cpu", ""), ("", ""), ("cu", ""), ("rocm6.4", "")],
)
def test_cuda_of_local_tag(tag: str, cuda: str) -> None:
    assert cuda_of_local_tag(tag) == cuda


@given(ANY_TEXT)
def test_tag_of_any_name(name: str) -> None:
    assert not tag_of(name) or tag_of(name) in name


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("_C.cpython-311-x86_64-linux-gnu.so", "cpython-311"),
        ("_C.cpython-313t-x86_64-linux-gnu.so", "cpython-313t"),
        ("_C.cpython-311d-x86_64-linux-gnu.so", "cpython-311d"),
        ("_C.abi3.so", "abi3"),
        ("_C.so", ""),
        ("libtorch.so", ""),
        ("_C.cpython-311-x86_64-linux-gnu.pyi", ""),
    ],
)
def test_tag_of_an_extension(name: str, tag: str) -> None:
    assert tag_of(f"/env/torch/{name}") == tag


@given(st.binary(max_size=300) | st.binary(max_size=100).map(lambda text: b"#!/" + text))
def test_launcher_of_any_bytes(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        launcher = read_launcher(HERE, Path(file.name))
    assert launcher is None or launcher.interpreter.startswith("/")


@given(st.binary(max_size=300))
def test_init_of_any_bytes(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        assert init_text(Path(file.name)) in {"empty", "namespace", "code"}


@given(ANY_TEXT, st.sampled_from(["x.pth", "sitecustomize.py", "usercustomize.py"]))
def test_startup_file_of_any_text(text: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        content = ("import sys; sys.path.insert(0, '/')" + text).encode("utf-8", "surrogatepass")
        Path(folder, name).write_bytes(content)
        found = find_startup_files(HERE, [folder])
    assert list(found) == [f"{folder}/{name}"]


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_triton_metadata_of_any_bytes(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "KEY").mkdir()
        (Path(folder) / "KEY/kernel.json").write_bytes(content)
        num_entries, entries = read_triton_entries(Path(folder))
    assert num_entries == 1
    assert all(entry.arch is None or isinstance(entry.arch, int) for entry in entries)


@given(st.binary(max_size=200))
def test_inductor_entries_of_any_bytes(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in ("fxgraph/ab/fab/name", "ab/cab.main.so"):
            file = Path(folder, path)
            file.parent.mkdir(parents=True)
            file.write_bytes(content)
        entries = read_inductor_entries(Path(folder), "x86_64")
    assert {Path(entry.path).name for entry in entries} == {"name", "cab.main.so"}


def test_builds_of_companions_are_read_from_their_files(tmp_path: Path) -> None:
    texts = {
        "torchvision/version.py": "__version__ = '0.26.0+cu128'\ncuda = '12.8'\n",
        "torchaudio/version.py": "__version__ = '2.11.0+cu130'\n",
        "xformers/cpp_lib.json": '{"version": {"cuda": 1300, "torch": "2.11.0+cu130"}}',
    }
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text)
    interpreter = InterpreterFact(
        prefix="/env", python=None, version="3.11", is_venv=True, site_packages=(str(tmp_path),)
    )
    fact = read_companion_builds(HERE, FactSet([interpreter]))
    assert [(build.name, build.cuda) for build in fact.builds] == [
        ("torchvision", "12.8"),
        ("torchaudio", "13.0"),
        ("xformers", "13.0"),
    ]


def test_what_stands_beside_dist_infos(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name in ("torch-2.6.0.egg-info", "Old_Thing.egg-info", "pkg", "~orch", "a-1.dist-info"):
        (site / name).mkdir(parents=True)
    for name in ("mod.py", "fast.cpython-311-x86_64-linux-gnu.so", "not-a-module.txt"):
        (site / name).write_text("")
    interpreter = InterpreterFact(
        prefix="/env", python=None, version="3.11", is_venv=True, site_packages=(str(site),)
    )
    fact = read_distributions(HERE, FactSet([interpreter]))
    assert fact.egg_infos == ("old-thing", "torch")
    assert fact.leftovers == (f"{site}/~orch",)
    assert [name for name, _ in fact.modules] == ["fast", "mod", "pkg"]
    (dist,) = fact.distributions
    assert (dist.name, dist.version, dist.has_metadata, dist.has_record) == ("a", "1", False, False)
    extensions = read_extensions(HERE, FactSet([fact]))
    assert [item.tag for item in extensions.extensions] == ["cpython-311"]
