from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import (
    FactSet,
    Gpu,
    HostFact,
    NvidiaFact,
    PathOwner,
    PathOwnersFact,
    PolicyFact,
    UserFact,
)
from envdoctor.probes.registry import collect
from envdoctor.probes.subject import Subject
from envdoctor.runner import run
from envdoctor.verdict import Problem, Severity
from tests.environments import Environment, elf, make_cuda_environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from envdoctor.facts import Fact

H200 = NvidiaFact(
    num_devices=1,
    driver="580.95.05",
    gpus=(Gpu(index=0, name="NVIDIA H200", capability="9.0", memory_bytes=10**11),),
)
HOST = HostFact(machine="x86_64", kernel="6", glibc="2.36", shm_bytes=None, disk_free_bytes=None)
CHECKS = (
    "cache-folder-not-writable",
    "cache-folder-open-to-all",
    "stale-compile-cache",
    "damaged-cache-entry",
    "stray-cache-left",
)
LONG_AGO = 1_600_000_000


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return make_cuda_environment(tmp_path / "env")


def user(tmp_path: Path, **more: object) -> UserFact:
    values: dict[str, object] = {"uid": os.getuid(), "has_passwd_entry": True}
    values |= {"home": str(tmp_path / "home"), "home_writable": True}
    return UserFact(**(values | more))  # type: ignore[arg-type]


def judge(
    environment: Environment, variables: Mapping[str, str], *facts: Fact
) -> list[tuple[str, Problem]]:
    # so that the cache of whoever runs the tests is not looked at
    variables = {"USER": "me", "TMPDIR": str(environment.prefix.parent), **variables}
    subject = Subject(prefix=environment.prefix, variables=variables, policy=PolicyFact())
    given = FactSet([H200, HOST, user(environment.prefix.parent), *facts])
    findings = run([item for item in BUILTIN_CHECKS if item.id in CHECKS], collect(subject, given))
    return [(item.check, item.outcome) for item in findings if isinstance(item.outcome, Problem)]


def add_entry(
    cache: Path, key: str, *, triton: str = "3.6.0", arch: int = 90, modified: int = LONG_AGO
) -> Path:
    folder = cache / key
    folder.mkdir(parents=True)
    metadata = {"triton_version": triton, "target": {"backend": "cuda", "arch": arch}}
    (folder / "kernel.json").write_text(json.dumps(metadata))
    (folder / "__grp__kernel.json").write_text("{}")
    (folder / "kernel.cubin").write_bytes(elf("kernel"))
    os.utime(folder / "kernel.json", (modified, modified))
    return folder


def test_no_cache_is_normal(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    variables = {"HOME": str(tmp_path / "home"), "USER": "me", "TMPDIR": str(tmp_path)}
    assert judge(environment, variables) == []


@pytest.mark.parametrize(
    ("triton", "arch"),
    [
        pytest.param("3.4.0", 90, id="another-triton"),
        pytest.param("3.6.0", 120, id="another-gpu"),
        pytest.param("3.4.0", 120, id="both"),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        pytest.param({"TRITON_CACHE_DIR": "{dir}/.triton/cache"}, id="its-variable"),
        pytest.param({"TRITON_HOME": "{dir}"}, id="its-home"),
        pytest.param({"HOME": "{dir}"}, id="the-users-home"),
    ],
)
def test_old_kernels_of_another_triton_or_gpu(
    environment: Environment, tmp_path: Path, place: dict[str, str], triton: str, arch: int
) -> None:
    cache = tmp_path / "mine/.triton/cache"
    add_entry(cache, "GOOD", modified=LONG_AGO)
    stale = add_entry(cache, "STALE", triton=triton, arch=arch)
    variables = {name: value.format(dir=tmp_path / "mine") for name, value in place.items()}
    ((check, problem),) = judge(environment, variables)
    assert (check, problem.culprit) == ("stale-compile-cache", str(cache))
    assert problem.severity is Severity.WARNING
    assert problem.remedy.kind == "clear-cache"
    assert problem.remedy.commands == (f"rm -r {stale}",)


def test_cache_of_nothing_but_old_kernels_is_removed_whole(
    environment: Environment, tmp_path: Path
) -> None:
    add_entry(tmp_path / "cache", "ONE", triton="3.4.0")
    add_entry(tmp_path / "cache", "TWO", triton="3.5.1")
    ((_, problem),) = judge(environment, {"TRITON_CACHE_DIR": str(tmp_path / "cache")})
    assert problem.remedy.commands == (f"rm -r {tmp_path}/cache",)


@pytest.mark.parametrize(
    ("triton", "arch", "modified"),
    [
        pytest.param("3.6.0", 90, LONG_AGO, id="of-this-build"),
        pytest.param("3.6.0+git1", 90, LONG_AGO, id="local-tag"),
        pytest.param("3.4.0", 120, 4_000_000_000, id="newer-than-the-installation"),
    ],
)
def test_kernels_that_are_left_alone(
    environment: Environment, tmp_path: Path, triton: str, arch: int, modified: int
) -> None:
    add_entry(tmp_path / "cache", "KEY", triton=triton, arch=arch, modified=modified)
    assert judge(environment, {"TRITON_CACHE_DIR": str(tmp_path / "cache")}) == []


def test_kernels_of_inductor_are_looked_at_too(environment: Environment, tmp_path: Path) -> None:
    add_entry(tmp_path / "torchinductor_me/triton/0", "KEY", triton="3.4.0")
    ((check, problem),) = judge(environment, {"USER": "me", "TMPDIR": str(tmp_path)})
    assert check == "stale-compile-cache"
    assert problem.culprit == str(tmp_path / "torchinductor_me/triton/0")


def test_inductors_default_folder_holds_headers_whatever_its_variable_says(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    default = tmp_path / "torchinductor_me"
    default.mkdir()
    default.chmod(0o777)
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "mine"), "TMPDIR": str(tmp_path)}
    ((check, problem),) = judge(environment, variables)
    assert (check, problem.culprit) == ("cache-folder-open-to-all", str(default))
    default.chmod(0o700)
    assert judge(environment, variables) == []


def test_only_a_part_of_a_large_cache_is_read(environment: Environment, tmp_path: Path) -> None:
    for number in range(300):
        add_entry(tmp_path / "cache", f"K{number:03}", triton="3.4.0")
    ((_, problem),) = judge(environment, {"TRITON_CACHE_DIR": str(tmp_path / "cache")})
    assert "100 of 100 entries read" in problem.message


@pytest.mark.parametrize(
    ("file", "content"),
    [
        pytest.param("kernel.json", '{"triton_ver', id="json-cut-short"),
        pytest.param("kernel.json", "", id="json-empty"),
        pytest.param("kernel.json", "[1]", id="json-of-another-kind"),
        pytest.param("kernel.json", "[" * 100_000, id="json-too-deep"),
        pytest.param("kernel.cubin", "\x7fELF", id="kernel-cut-short"),
    ],
)
def test_damaged_triton_entry_stops_the_run(
    environment: Environment, tmp_path: Path, file: str, content: str
) -> None:
    folder = add_entry(tmp_path / "cache", "KEY", modified=4_000_000_000)
    (folder / file).write_text(content)
    os.utime(folder / "kernel.json", (4_000_000_000, 4_000_000_000))
    ((check, problem),) = judge(environment, {"TRITON_CACHE_DIR": str(tmp_path / "cache")})
    assert (check, problem.culprit) == ("damaged-cache-entry", str(folder / file))
    assert problem.severity is Severity.ERROR
    assert problem.remedy.commands == (f"rm -r {folder}",)


def test_damaged_entry_from_before_the_installation_is_a_warning(
    environment: Environment, tmp_path: Path
) -> None:
    folder = add_entry(tmp_path / "cache", "KEY")
    (folder / "kernel.json").write_text("{")
    os.utime(folder / "kernel.json", (LONG_AGO, LONG_AGO))
    ((_, problem),) = judge(environment, {"TRITON_CACHE_DIR": str(tmp_path / "cache")})
    assert problem.severity is Severity.WARNING


def test_what_writers_leave_or_hide_is_no_entry(environment: Environment, tmp_path: Path) -> None:
    for name in ("tmp.pid_1_2", "EMPTY"):
        (tmp_path / "cache" / name).mkdir(parents=True)
    (tmp_path / "cache/file.lock").write_text("")
    (tmp_path / "cache/KEY").mkdir()
    os.mkfifo(tmp_path / "cache/KEY/kernel.json")
    assert judge(environment, {"TRITON_CACHE_DIR": str(tmp_path / "cache")}) == []


def pickle_name(content: bytes) -> str:
    return base64.b32encode(hashlib.sha256(content).digest())[:51].decode().lower()


def add_inductor(root: Path, *, pickle: bytes = b"x", name: str = "", library: bytes = b"") -> Path:
    folder = root / "fxgraph/ab/fabc"
    folder.mkdir(parents=True)
    (folder / (name or pickle_name(pickle))).write_bytes(pickle)
    (folder / ".1.2.tmp").write_bytes(b"half")
    (root / "ab").mkdir()
    (root / "ab/cabc.main.so").write_bytes(library or elf("c.so"))
    return root


@pytest.mark.parametrize(
    ("library", "says"),
    [
        pytest.param(elf("c.so", machine=183), "code for aarch64", id="another-machine"),
        pytest.param(b"\x7fELF", "not a 64-bit", id="cut-short"),
        pytest.param(b"text", "not an ELF object", id="text"),
        pytest.param(elf("c.so")[:200], "", id="cut-in-half"),
    ],
)
def test_damaged_library_of_inductor_stops_the_run(
    environment: Environment, tmp_path: Path, library: bytes, says: str
) -> None:
    root = add_inductor(tmp_path / "inductor", library=library)
    ((check, problem),) = judge(environment, {"TORCHINDUCTOR_CACHE_DIR": str(root)})
    assert (check, problem.severity) == ("damaged-cache-entry", Severity.ERROR)
    assert problem.culprit == str(root / "ab/cabc.main.so")
    assert says in problem.message


def test_pickle_whose_name_is_not_its_hash_is_a_warning(
    environment: Environment, tmp_path: Path
) -> None:
    root = add_inductor(tmp_path / "inductor", name="x")
    ((_, problem),) = judge(environment, {"TORCHINDUCTOR_CACHE_DIR": str(root)})
    assert problem.severity is Severity.WARNING
    assert problem.remedy.commands == (f"rm -r {root}/fxgraph/ab/fabc/x",)


@pytest.mark.parametrize(
    "pickle", [pytest.param(b"x", id="small"), pytest.param(b"x" * 2_000_000, id="large")]
)
def test_whole_cache_of_inductor(environment: Environment, tmp_path: Path, pickle: bytes) -> None:
    root = add_inductor(tmp_path / "inductor", pickle=pickle, name="large" * (len(pickle) > 1))
    assert judge(environment, {"TORCHINDUCTOR_CACHE_DIR": str(root)}) == []


def owners(path: str, **values: object) -> PathOwnersFact:
    return PathOwnersFact(owners=(PathOwner(path=path, **values),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("owner", "severity"),
    [
        pytest.param({"uid": 1001, "mode": 0o555, "is_writable": False}, Severity.ERROR, id="told"),
        pytest.param({"uid": 1001, "mode": 0o755}, Severity.ERROR, id="by-owner-and-mode"),
        pytest.param({"uid": 1000, "mode": 0o555}, Severity.ERROR, id="own-but-read-only"),
        pytest.param({"uid": 1001, "mode": 0o1777}, Severity.WARNING, id="open-but-anothers"),
        pytest.param({"uid": 1000, "mode": 0o755}, None, id="own"),
        pytest.param({"is_writable": True}, None, id="writable"),
        pytest.param({}, None, id="nothing-known"),
    ],
)
def test_cache_folder_of_somebody_else(
    environment: Environment, tmp_path: Path, owner: dict[str, object], severity: Severity | None
) -> None:
    cache = tmp_path / "triton"
    cache.mkdir()
    variables = {"TRITON_CACHE_DIR": str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    found = judge(environment, variables, owners(str(cache), **owner), user(tmp_path, uid=1000))
    assert [(check, problem.severity) for check, problem in found] == (
        [("cache-folder-not-writable", severity)] if severity else []
    )
    for _, problem in found:
        assert problem.culprit == "TRITON_CACHE_DIR"
        assert problem.remedy.kind == "set-env"
        assert problem.remedy.commands == (
            f"export TRITON_CACHE_DIR={tmp_path}/home/.cache/torch-compile/triton",
            f"export TORCHINDUCTOR_CACHE_DIR={tmp_path}/home/.cache/torch-compile/inductor",
        )


def test_root_may_use_what_belongs_to_others(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    told = owners(str(tmp_path / "triton"), uid=1001, mode=0o755)
    variables = {"TRITON_CACHE_DIR": str(tmp_path / "triton")}
    assert judge(environment, variables, told, user(tmp_path, uid=0)) == []


def test_home_that_cannot_be_written_bars_a_cache_that_is_not_there_yet(
    environment: Environment, tmp_path: Path
) -> None:
    told = owners(str(tmp_path), uid=0, mode=0o755)
    someone = user(tmp_path, uid=1000, home=str(tmp_path / "nobody"), home_writable=False)
    variables = {"HOME": str(tmp_path / "nobody"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "x")}
    told = PathOwnersFact(
        owners=(*told.owners, PathOwner(path=str(tmp_path / "x"), uid=1000, is_writable=True))
    )
    ((_, problem),) = judge(environment, variables, told, someone)
    assert problem.severity is Severity.ERROR
    assert problem.culprit == str(tmp_path / "nobody/.triton/cache")
    assert problem.remedy.commands == ("export TRITON_CACHE_DIR=/tmp/torch-compile-1000/triton",)


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o777, True), (0o1777, False), (0o775, False), (0o700, False)]
)
def test_cache_folder_that_everybody_may_write(
    environment: Environment, tmp_path: Path, mode: int, is_open: bool
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(mode)
    found = judge(environment, {"TRITON_CACHE_DIR": str(cache)})
    assert [check for check, _ in found] == (["cache-folder-open-to-all"] if is_open else [])


def test_caches_of_engines_are_one_note(environment: Environment, tmp_path: Path) -> None:
    for name in ("flashinfer", "vllm", "unrelated"):
        (tmp_path / "home/.cache" / name).mkdir(parents=True)
    ((check, problem),) = judge(environment, {"HOME": str(tmp_path / "home")})
    assert (check, problem.severity) == ("stray-cache-left", Severity.INFO)
    assert problem.remedy.commands == (
        f"rm -r {tmp_path}/home/.cache/flashinfer",
        f"rm -r {tmp_path}/home/.cache/vllm",
    )


def test_files_of_a_mounted_root_tell_no_owner(environment: Environment, tmp_path: Path) -> None:
    root = tmp_path / "root"
    cache = root / "var/cache/triton"
    cache.mkdir(parents=True)
    subject = Subject(
        prefix=environment.prefix, root=root, variables={"TRITON_CACHE_DIR": "/var/cache/triton"}
    )
    given = FactSet([H200, HOST, user(tmp_path, uid=1000)])
    findings = run([item for item in BUILTIN_CHECKS if item.id in CHECKS], collect(subject, given))
    assert not [item for item in findings if isinstance(item.outcome, Problem)]


def test_cache_below_a_closed_home_cannot_be_made(environment: Environment, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    someone = user(tmp_path, uid=1000, home_writable=False)
    told = owners(str(tmp_path), is_writable=True)
    ((_, problem),) = judge(environment, {"HOME": home}, someone, told)
    assert problem.severity is Severity.ERROR
    assert f"cannot write to its home folder {home}" in problem.message


def test_without_triton_nothing_is_stale(environment: Environment, tmp_path: Path) -> None:
    add_entry(tmp_path / "cache", "KEY", triton="3.4.0")
    shutil.rmtree(next(environment.site.glob("triton-*.dist-info")))
    assert judge(environment, {"TRITON_CACHE_DIR": str(tmp_path / "cache")}) == []
