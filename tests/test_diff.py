from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor import receipt
from envdoctor.diff import Change, compare
from envdoctor.facts import (
    DifferingFile,
    Distribution,
    DistributionFiles,
    DistributionsFact,
    FactSet,
    FoundLibrary,
    HostFact,
    InterpreterFact,
    LimitsFact,
    LoadedObject,
    LoaderFact,
    NvidiaFact,
    RecordsFact,
    TorchBuildFact,
    VariablesFact,
)
from envdoctor.interpreter import Interpreter
from envdoctor.pylock import Wheel
from envdoctor.states import Section, State, state_of_facts, state_of_receipt
from tests.environments import CUDNN, make_cuda_environment
from tests.test_cli import envdoctor

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1024**3
HOST = HostFact(
    machine="x86_64", kernel="6.1.0", glibc="2.36", shm_bytes=8 * GIB, disk_free_bytes=90 * GIB
)


def dist(name: str, version: str = "1", *requires: str, pure: bool = False) -> Distribution:
    tag = "py3-none-any" if pure else "cp311-cp311-manylinux_2_28_x86_64"
    return Distribution(name=name, version=version, path=name, requires=requires, tags=(tag,))


def installed(*dists: Distribution, prefix: str = "/e") -> State:
    torch = dist("torch", "2.11.0", "numpy", "sympy>=1")
    facts = FactSet(
        [
            InterpreterFact(
                prefix=prefix, python=None, version="3.11.7", is_venv=True, site_packages=()
            ),
            DistributionsFact(distributions=(torch, dist("numpy"), *dists)),
            TorchBuildFact(path="/e/torch", version="2.11.0+cu130", cuda="13.0"),
        ]
    )
    return state_of_facts(facts, name=prefix)


def of(section: Section, **values: str) -> State:
    torch = {"cuda": "13.0"}
    return State(name="x", sections={"torch": torch, section: values})


def only(before: State, after: State) -> Change:
    (change,) = compare(before, after).changes
    return change


@pytest.mark.parametrize(
    ("section", "before", "after", "suspicion"),
    [
        ("torch", {"version": "2.11.0+cu130"}, {"version": "2.11.0+cpu"}, "likely"),
        ("driver", {"driver": "580.95.05"}, {}, "likely"),
        ("driver", {"driver": "580.95.05"}, {"driver": "570.26"}, "likely"),
        ("driver", {"driver": "590.10"}, {"driver": "580.95.05"}, "possible"),
        ("driver", {"driver": "580.95.05"}, {"driver": "590.10"}, "unlikely"),
        ("driver", {}, {"error": "Driver/library version mismatch"}, "likely"),
        ("gpu", {"0": "H200"}, {"0": "T4"}, "likely"),
        ("gpu", {"0": "H200"}, {}, "likely"),
        ("variable", {}, {"LD_LIBRARY_PATH": "/x"}, "likely"),
        ("variable", {}, {"CUDA_VISIBLE_DEVICES": ""}, "likely"),
        ("variable", {"NCCL_DEBUG": "INFO"}, {}, "likely"),
        ("variable", {"PYTHONPATH": "a"}, {"PYTHONPATH": "b"}, "likely"),
        ("variable", {"PATH": "a"}, {"PATH": "b"}, "possible"),
        ("variable", {"HOME": "a"}, {"HOME": "b"}, "possible"),
        ("variable", {"OMP_NUM_THREADS": "1"}, {}, "unlikely"),
        ("python", {"version": "3.11.7"}, {"version": "3.12.1"}, "likely"),
        ("python", {"version": "3.11.7"}, {"version": "3.11.9"}, "unlikely"),
        ("host", {"glibc": "2.36"}, {"glibc": "2.17"}, "possible"),
        ("host", {"machine": "x86_64"}, {"machine": "aarch64"}, "likely"),
        ("host", {"shm_bytes": str(8 * GIB)}, {"shm_bytes": str(64 * 1024**2)}, "possible"),
        ("host", {"shm_bytes": str(8 * GIB)}, {"shm_bytes": str(4 * GIB)}, "cannot"),
        ("host", {"kernel": "6.1"}, {"kernel": "6.2"}, "unlikely"),
        ("file", {}, {"ENV/libcudnn.so.9": "missing"}, "likely"),
        ("file", {"ENV/libcudnn.so.9": "missing"}, {}, "unlikely"),
        ("library", {"libx": "ENV/x"}, {"libx": "/usr/x"}, "likely"),
        ("library", {"libx": "/usr/x"}, {"libx": "ENV/x"}, "possible"),
        ("library", {"libx": "ENV/a/x"}, {"libx": "ENV/b/x"}, "unlikely"),
        ("library", {"libx": "ENV/x"}, {}, "unlikely"),
        ("other", {"limits.open_files": "1024"}, {}, "unlikely"),
    ],
)
def test_suspicion(
    section: Section, before: dict[str, str], after: dict[str, str], suspicion: str
) -> None:
    change = only(of(section, **before), of(section, **after))
    assert change.section == section
    assert change.suspicion == suspicion
    assert change.reason


@pytest.mark.parametrize(
    ("package", "suspicion"),
    [
        pytest.param(dist("nvidia-cudnn-cu13"), "likely", id="cuda-library"),
        pytest.param(dist("triton"), "likely", id="triton"),
        pytest.param(dist("nvidia-ml-py", pure=True), "cannot", id="binding-for-nvml"),
        pytest.param(dist("sympy", pure=True), "possible", id="required-by-torch"),
        pytest.param(dist("sglang", pure=True), "possible", id="engine"),
        pytest.param(dist("flashinfer-python"), "possible", id="kernels-of-engines"),
        pytest.param(dist("pip", pure=True), "cannot", id="installer"),
        pytest.param(dist("requests", pure=True), "cannot", id="python-alone"),
        pytest.param(dist("pillow"), "unlikely", id="compiled"),
    ],
)
def test_suspicion_of_a_package(package: Distribution, suspicion: str) -> None:
    for before, after in (
        (installed(), installed(package)),
        (installed(package), installed()),
        (installed(package), installed(replace(package, version="2"))),
    ):
        change = only(before, after)
        assert (change.key, change.suspicion) == (package.name, suspicion), change


def test_package_that_got_compiled_code_is_no_longer_python_alone() -> None:
    before, after = dist("cli", pure=True), dist("cli", "2")
    assert only(installed(before), installed(after)).suspicion == "unlikely"


def test_without_requirements_nothing_is_ruled_out() -> None:
    before = State(name="a", sections={"package": {"requests": "1"}}, pure=frozenset({"requests"}))
    after = replace(before, sections={"package": {}})
    assert only(before, after).suspicion == "unlikely"


def test_most_suspicious_comes_first() -> None:
    before = replace(installed(dist("pip"), dist("pillow"), dist("nvidia-nccl-cu13")), name="a")
    found = compare(before, installed(dist("attrs", pure=True)))
    assert [change.key for change in found.changes] == [
        "nvidia-nccl-cu13",
        "pillow",
        "attrs",
        "pip",
    ]


def test_moved_environment_is_the_same() -> None:
    library = LoadedObject(found=FoundLibrary(name="x", path="/a/lib/libx.so"), soname="libx.so")
    moved = LoadedObject(found=FoundLibrary(name="x", path="/b/lib/libx.so"), soname="libx.so")
    states = [
        state_of_facts(
            FactSet(
                [
                    InterpreterFact(
                        prefix=prefix, python=None, version="3", is_venv=True, site_packages=()
                    ),
                    LoaderFact(objects=(item,)),
                    VariablesFact(values=(("PATH", f"{prefix}/bin:/usr/bin"),)),
                ]
            ),
            name=prefix,
        )
        for prefix, item in (("/a", library), ("/b", moved))
    ]
    assert compare(*states).changes == ()


def test_free_space_is_no_change_while_there_is_enough() -> None:
    states = [
        state_of_facts(FactSet([replace(HOST, disk_free_bytes=free * GIB)]), name="x")
        for free in (90, 50, 0)
    ]
    assert compare(states[0], states[1]).changes == ()
    assert only(states[0], states[2]).suspicion == "possible"


def test_facts_of_other_kinds_are_compared_field_by_field() -> None:
    before, after = (
        state_of_facts(FactSet([LimitsFact(open_files=number)]), name="x") for number in (1, 2)
    )
    change = only(before, after)
    assert (change.section, change.key) == ("other", "limits.open_files")
    assert (change.before, change.after) == ("1", "2")


def test_damaged_file_is_a_change() -> None:
    damaged = DifferingFile(path="/e/libx.so", expected="5 bytes", found="missing")
    before, after = (
        state_of_facts(
            FactSet(
                [
                    RecordsFact(
                        distributions=(
                            DistributionFiles(name="x", num_files=1, num_libraries=1, differing=d),
                        )
                    )
                ]
            ),
            name="x",
        )
        for d in ((), (damaged,))
    )
    assert only(before, after).after == "missing (expected 5 bytes)"


def test_what_only_one_tells_is_named_and_no_change() -> None:
    before = state_of_facts(FactSet([HOST]), name="a")
    after = state_of_facts(FactSet([NvidiaFact(num_devices=0)]), name="b")
    found = compare(before, after)
    assert found.changes == ()
    assert found.not_compared == ("host: only a tells", "driver: only b tells", "gpu: only b tells")


TEXTS = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3)
SECTIONS = st.dictionaries(st.sampled_from(get_args(Section)), TEXTS, max_size=4)


@given(SECTIONS, SECTIONS)
def test_comparison_is_complete_and_mirrors(one: Any, other: Any) -> None:
    before, after = (State(name="x", sections=sections) for sections in (one, other))
    assert compare(before, before).changes == ()
    forth, back = compare(before, after).changes, compare(after, before).changes
    assert {(c.section, c.key, c.before, c.after) for c in forth} == {
        (c.section, c.key, c.after, c.before) for c in back
    }


def some_receipt(**packages: str) -> receipt.Receipt:
    return receipt.Receipt(
        id="0" * 16,
        generation="1",
        previous=None,
        profile={},
        profile_sha256="0",
        source="PyPI",
        left_out=(),
        packages=tuple(
            Wheel(
                name=name,
                version=version,
                file=f"{name}-{version}-py3-none-any.whl",
                sha256="0",
                size=None,
                source="PyPI",
            )
            for name, version in packages.items()
        ),
        python=Interpreter(
            path="/usr/bin/python3",
            version="3.11.7",
            build="",
            implementation="CPython",
            machine="x86_64",
            is_free_threaded=False,
        ),
        uv=receipt.UvRecord(path="/uv", version="0.13.9", sha256="0"),
        envdoctor_version="0",
        host={"machine": "x86_64", "kernel": "6.1.0", "disk_free_bytes": 5 * GIB},
        link_mode="copy",
        variables_dropped=(),
        started="",
        finished="",
        seconds={},
        report={"environment": {"torch": "2.11.0+cu130", "cuda": "13.0", "driver": "580.65.06"}},
    )


def test_receipts_are_compared_with_each_other_and_with_snapshots() -> None:
    before = state_of_receipt(some_receipt(torch="2.11.0", numpy="1"), name="receipt")
    after = state_of_receipt(some_receipt(torch="2.11.0", numpy="2"), name="receipt")
    assert only(before, after).key == "numpy"
    change = only(before, installed(dist("vllm")))
    assert (change.key, change.suspicion) == ("vllm", "possible")


def test_two_environments(tmp_path: Path) -> None:
    make_cuda_environment(tmp_path / "a")
    other = make_cuda_environment(tmp_path / "b")
    same = envdoctor("diff", tmp_path / "a", tmp_path / "b")
    assert same.returncode == 0, same.stdout
    assert same.stdout.splitlines()[-1] == "nothing changed"
    (other.site / CUDNN).unlink()
    done = envdoctor("diff", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1
    assert f"file ENV/lib/python3.11/site-packages/{CUDNN}: missing" in done.stdout


def test_snapshot_and_receipt_as_json(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    snapshot = tmp_path / "then.json"
    snapshot.write_text(envdoctor("facts", "--prefix", environment.prefix).stdout)
    environment.install("sglang", "0.5", {"sglang/__init__.py": b""})
    done = envdoctor("diff", snapshot, environment.prefix, "--format", "json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert set(found) == {"schema_version", "before", "after", "changes", "not_compared"}
    (change,) = found["changes"]
    assert set(change) == {"section", "key", "before", "after", "suspicion", "reason"}
    assert (change["key"], change["before"], change["after"]) == ("sglang", None, "0.5")
    receipt.write(some_receipt(torch="2.10.0", triton="3.5.0"), tmp_path / "receipt.json")
    done = envdoctor("diff", tmp_path / "receipt.json", snapshot, "--format", "json")
    assert done.returncode == 1
    assert any("only" in text for text in json.loads(done.stdout)["not_compared"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "no such file", id="absent"),
        pytest.param("", "not JSON", id="empty"),
        pytest.param("[1]", "neither a snapshot nor a receipt", id="other-json"),
        pytest.param('{"facts": 3}', "wanted", id="broken-snapshot"),
        pytest.param('{"generation": 3}', "no receipt", id="broken-receipt"),
        pytest.param("folder", "no Python environment", id="folder"),
    ],
)
def test_wrong_input_exits_2(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "x"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    done = envdoctor("diff", path, path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
