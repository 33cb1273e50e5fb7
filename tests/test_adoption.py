"""Taking over environments that were made elsewhere, and what changes around sealed ones."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from envdoctor import adoption, drift, generations, launch, profile, receipt, surroundings
from envdoctor.adoption import AdoptionRequest, adopt
from envdoctor.errors import UsageError
from envdoctor.interpreter import choose
from envdoctor.lockfile import file_name
from envdoctor.sbom import cyclonedx
from envdoctor.talk import silent
from envdoctor.train_request import TrainRequest
from envdoctor.verify import UnfitEnvironmentError
from tests.workbench import Bench, envdoctor

if TYPE_CHECKING:
    from envdoctor.receipt import Receipt

SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with torch's stand-in that no envdoctor has made."""
    bench = Bench(tmp_path_factory.mktemp("made"))
    bench.build(bench.write())
    shutil.copytree(bench.current.resolve(), bench.folder / "venv", symlinks=True)
    return bench.folder


@pytest.fixture
def bench(made: Path, tmp_path: Path) -> Bench:
    found = Bench(tmp_path / "bench")
    shutil.copytree(made / "venv", found.folder / "my venv", symlinks=True)
    return found


def env_of(bench: Bench) -> Path:
    return bench.folder / "my venv"


def taken(bench: Bench, wanted: str | None = None) -> Receipt:
    request = AdoptionRequest(
        prefix=env_of(bench),
        profile=profile.load_profile(wanted) if wanted else None,
        asked=wanted or "",
    )
    return adopt(request, settings=bench.settings, talk=silent)


def test_whole_environment_is_sealed_where_it_is(bench: Bench) -> None:
    before = sorted(path for path in env_of(bench).rglob("*"))
    found = taken(bench)
    assert sorted(path for path in env_of(bench).rglob("*")) == before
    assert found.adopted == str(env_of(bench))
    assert [(one.name, one.version) for one in found.packages] == [
        ("alpha", "1.0"),
        ("beta", "1.0"),
        ("torch", "9.9.0+cpu"),
    ]
    assert found.tree is not None
    (read,) = adoption.adopted(bench.home)
    assert msgspec.json.encode(read) == msgspec.json.encode(found)
    assert drift.find(env_of(bench), home=bench.home).changes == ()
    parts = cyclonedx(found)["components"]
    assert [one["name"] for one in parts[1:]] == ["alpha", "beta", "torch"]
    assert not any("hashes" in one for one in parts)


def test_adopted_environment_is_listed_watched_and_trained_in(bench: Bench) -> None:
    path = bench.write()
    assert envdoctor(bench, "adopt", str(env_of(bench)), "-p", path).stdout == f"{env_of(bench)}\n"
    (line,) = envdoctor(bench, "envs").stdout.splitlines()
    assert line.split()[:2] == ["tiny", "adopted"]
    assert line.endswith(f"9.9.0+cpu      {env_of(bench)}")
    listed = json.loads(envdoctor(bench, "envs", "list", "--format", "json").stdout)
    assert [one["role"] for one in listed] == ["adopted"]
    assert generations.listed(bench.settings, "tiny")
    request = TrainRequest(config=Path("x"), env=env_of(bench))
    place = launch.choose(request, bench.settings)
    assert place.profile == profile.load_profile(path)
    assert "adopted" in place.origin
    (env_of(bench) / SITE / "torch/part_3.py").write_text("x")
    done = envdoctor(bench, "check", "--drift", "--prefix", str(env_of(bench)))
    assert done.returncode == 1
    assert done.stdout.startswith("torch ")


def same_size(path: Path) -> None:
    status = path.stat()
    path.write_bytes(path.read_bytes().replace(b"0", b"1"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


DAMAGE = [
    pytest.param(lambda env: (env / SITE / "torch/part_0.py").unlink(), "part_0.py", id="missing"),
    pytest.param(lambda env: same_size(env / SITE / "torch/part_0.py"), "part_0.py", id="content"),
    pytest.param(lambda env: shutil.rmtree(env / SITE / "torch"), "torch", id="no-torch"),
]


@pytest.mark.parametrize(("damage", "named"), DAMAGE)
def test_damaged_environment_is_refused_with_the_report(
    bench: Bench, damage: object, named: str
) -> None:
    damage(env_of(bench))  # type: ignore[operator]
    with pytest.raises(UnfitEnvironmentError, match=named) as caught:
        taken(bench)
    assert caught.value.report is not None
    assert caught.value.report.exit_code == 1
    assert not list(adoption.adopted(bench.home))
    assert envdoctor(bench, "adopt", str(env_of(bench))).returncode == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param({"require": "alpha==2.0"}, "alpha==2.0 (found 1.0)", id="version"),
        pytest.param({"require": "gamma"}, "gamma (found none)", id="absent"),
        pytest.param({"torch": "9.9.1"}, "9.9.1", id="torch"),
        pytest.param({"more": '[python]\nrequires = ">=3.99"'}, "Python 3", id="python"),
    ],
)
def test_environment_that_is_not_of_the_profile_is_refused(
    bench: Bench, change: dict[str, str], named: str
) -> None:
    with pytest.raises(UnfitEnvironmentError) as caught:
        taken(bench, bench.write(**change))  # type: ignore[arg-type]
    assert named in caught.value.message


def test_what_is_no_environment_of_its_own_is_not_adopted(bench: Bench) -> None:
    built = bench.build(bench.write())
    with pytest.raises(UsageError, match="envdoctor built it"):
        adopt(AdoptionRequest(prefix=built.path), settings=bench.settings, talk=silent)
    (env_of(bench) / "pyvenv.cfg").unlink()
    with pytest.raises(UsageError, match="no virtual environment"):
        taken(bench)


def test_adopted_environment_that_is_gone_is_forgotten_and_none_is_deleted(bench: Bench) -> None:
    taken(bench)
    assert "forgot" not in envdoctor(bench, "envs", "prune").stdout
    env_of(bench).rename(bench.folder / "elsewhere")
    assert generations.listed(bench.settings)[0].role == "adopted, gone"
    assert f"forgot {env_of(bench)}" in envdoctor(bench, "envs", "prune").stdout
    assert not list((bench.home / "adopted").iterdir())


def test_file_that_no_package_owns_is_told_and_watched(bench: Bench) -> None:
    (env_of(bench) / SITE / "own.py").write_text("x = 1\n")
    done = envdoctor(bench, "adopt", str(env_of(bench)))
    assert "1 files belong to no package" in done.stderr
    (env_of(bench) / SITE / "own.py").write_text("x = 2 + 3\n")
    (change,) = drift.find(env_of(bench), home=bench.home).changes
    assert (change.path, change.owner) == (f"{SITE}/own.py", "")


def test_python_that_was_replaced_under_the_environment_is_drift(bench: Bench) -> None:
    python = bench.folder / "python/bin/python3"
    python.parent.mkdir(parents=True)
    python.write_bytes(b"ELF 1")
    (env_of(bench) / "bin/python").unlink()
    (env_of(bench) / "bin/python").symlink_to(python)
    taken(bench)
    assert drift.find(env_of(bench), home=bench.home, deep=True).changes == ()
    os.utime(python)
    assert drift.find(env_of(bench), home=bench.home).changes == ()
    python.write_bytes(b"ELF 2")
    (change,) = drift.find(env_of(bench), home=bench.home).changes
    assert (change.path, change.detail) == (str(python), "the Python below has been replaced")
    python.unlink()
    (change,) = drift.find(env_of(bench), home=bench.home).changes
    assert (change.path, change.detail) == ("bin/python", f"the interpreter {python} is gone")


@pytest.fixture
def sealed(bench: Bench) -> Receipt:
    built = build_as_asked(bench, bench.write())
    found = receipt.read(bench.envs / f"receipts/{built}.json")
    assert found is not None
    return found


def build_as_asked(bench: Bench, path: str) -> str:
    done = envdoctor(bench, "build", "--profile", path)
    assert done.returncode == 0, done.stderr
    return bench.current.resolve().name


def test_driver_that_is_another_is_noted(sealed: Receipt, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert surroundings.changes(sealed, root=root) == []
    version = root / "sys/module/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("580.65.06\n")
    assert surroundings.changes(sealed, root=root) == ["the NVIDIA driver was none, is 580.65.06"]


def test_profile_that_has_changed_or_is_gone_is_noted(
    bench: Bench, sealed: Receipt, tmp_path: Path
) -> None:
    path = bench.write(more='[env]\nset = { A = "1" }')
    assert surroundings.changes(sealed, root=tmp_path) == [f"profile {path} has changed since"]
    done = envdoctor(bench, "check", "--drift")
    assert (done.returncode, f"note: profile {path} has changed" in done.stdout) == (0, True)
    data = json.loads(envdoctor(bench, "check", "--drift", "--format", "json").stdout)
    assert data["is_clean"]
    assert data["notes"] == [f"profile {path} has changed since"]
    Path(path).unlink()
    (note,) = surroundings.changes(sealed, root=tmp_path)
    assert f"its profile can no longer be read: {path}: no such file" in note


def test_lock_that_names_other_packages_is_noted(
    bench: Bench, sealed: Receipt, tmp_path: Path
) -> None:
    done = envdoctor(bench, "lock", "--profile", bench.write())
    assert done.returncode == 0, done.stderr
    assert surroundings.changes(sealed, root=tmp_path) == []
    python = choose(None, requires=">=3.11", variables=os.environ)
    lock = bench.folder / "locks" / file_name("tiny", python)
    lock.write_text(lock.read_text().replace("9.9.0+cpu", "9.9.1+cpu"))
    (note,) = surroundings.changes(sealed, root=tmp_path)
    assert "names other packages: torch 9.9.0+cpu -> 9.9.1+cpu" in note


def test_requirements_that_were_added_are_no_change_of_the_profile(
    bench: Bench, tmp_path: Path
) -> None:
    done = envdoctor(bench, "build", "--profile", bench.write(), "--with", "beta==1.0")
    assert done.returncode == 0, done.stderr
    found = receipt.read(bench.envs / f"receipts/{bench.current.resolve().name}.json")
    assert found is not None
    assert found.added == ("beta==1.0",)
    assert surroundings.changes(found, root=tmp_path) == []
