"""Locks: their form, whether they hold, and builds that take their packages from them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor import build, lockfile, locking, profile, uv
from envdoctor.errors import ExitCode, IntegrityError, UsageError, UserFileError
from envdoctor.lockfile import Difference, Locked
from envdoctor.pylock import Lock, Wheel
from envdoctor.relock import Relocked, relock
from envdoctor.resources import bundled
from tests.tiny_wheels import make_index, make_torch, make_wheel
from tests.workbench import Bench, envdoctor

SHA = "a" * 64
HEADER = lockfile.Header(profile="p", profile_sha256=SHA, python="cp311", platform="linux_x86_64")
COMMITTED = sorted((bundled("profiles") / "locks").glob("*.toml"))


def wheel(name: str, version: str, sha256: str = SHA) -> Wheel:
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return Wheel(name=name, version=version, file=file, sha256=sha256, size=7, source="lock")


def locked(*wheels: Wheel) -> Locked:
    return Locked(header=HEADER, lock=Lock(wheels=wheels, urls={}))


NAMES = st.from_regex(r"\A[a-z][a-z0-9]{0,5}(-[a-z0-9]{1,5})?\Z")
VERSIONS = st.from_regex(r"\A[0-9]{1,3}(\.[0-9]{1,3}){0,2}(\+cu[0-9]{3})?\Z")


@given(st.dictionaries(NAMES, VERSIONS, max_size=5))
def test_written_lock_reads_back(packages: dict[str, str]) -> None:
    found = locked(*(wheel(name, packages[name]) for name in sorted(packages)))
    text = lockfile.text_of(found)
    if packages:
        assert lockfile.parse(text, name="x") == found
    assert "://" not in text


@given(st.text())
def test_any_text_is_a_lock_or_a_user_file_error(text: str) -> None:
    with pytest.raises(UserFileError, match=r"\Amine: "):
        lockfile.parse(text, name="mine")


WHOLE = lockfile.text_of(locked(wheel("alpha", "1.0"), wheel("beta", "2.0")))


@given(st.integers(0, len(WHOLE)), st.integers(0, 9), st.text(max_size=3))
def test_any_damage_is_read_or_refused(start: int, length: int, patch: str) -> None:
    text = WHOLE[:start] + patch + WHOLE[start + length :]
    try:
        found = lockfile.parse(text, name="mine")
    except UserFileError as error:
        assert error.reference == "lock-not-valid"
    else:
        assert all(len(one.sha256) == 64 and "/" not in one.file for one in found.lock.wheels)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(('path = "', 'path = "../'), "wanted the file's name", id="path-elsewhere"),
        pytest.param((SHA, "a" * 63), "sha256", id="short-hash"),
        pytest.param(("size = 7", "size = -1"), "size", id="negative-size"),
        pytest.param(('"alpha"', '"gamma"'), "sorted by name", id="order"),
        pytest.param(('name = "alpha"', 'name = "Alpha"'), "normalised", id="name"),
        pytest.param(('\nversion = "1.0"', '\nversion = "1.1"'), "wanted 1.1", id="version"),
        pytest.param(("-py3-none-any.whl", ".tar.gz"), "name of a wheel", id="sdist"),
        pytest.param(('version = "1.0"\nw', 'version = "x"\nw'), "wanted x", id="no-version"),
        pytest.param(('lock-version = "1.0"', 'lock-version = "2.0"'), "lock-version", id="newer"),
        pytest.param(("schema = 1", "schema = 2"), "schema", id="newer-schema"),
        pytest.param(("[tool.envdoctor]", "[tool.other]"), "envdoctor", id="of-another-tool"),
    ],
)
def test_lock_with_wrong_values_is_refused(change: tuple[str, str], words: str) -> None:
    assert change[0] in WHOLE
    with pytest.raises(UserFileError, match=words):
        lockfile.parse(WHOLE.replace(*change), name="mine")


def test_differences_are_additions_removals_moves_and_other_files() -> None:
    before = locked(wheel("a", "1"), wheel("b", "1"), wheel("c", "1"), wheel("d", "1")).lock
    after = locked(wheel("a", "1"), wheel("b", "2", "b" * 64), wheel("d", "1", "c" * 64)).lock
    new = Lock(wheels=(*after.wheels, wheel("e", "1")), urls={})
    assert lockfile.differences(before, new) == [
        Difference(name="b", before="1", after="2"),
        Difference(name="c", before="1", after=None),
        Difference(name="d", before="1", after="1"),
        Difference(name="e", before=None, after="1"),
    ]
    assert [one.name for one in lockfile.differences(None, before)] == ["a", "b", "c", "d"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def lock(bench: Bench, path: str, *upgrade: str) -> Relocked:
    wanted = build.BuildRequest(profile=profile.load_profile(path), locks=locking.folder_of(path))
    return relock(wanted, upgrade=upgrade, settings=bench.settings, talk=bench.events.append)


def versions(built: build.Built) -> dict[str, str]:
    return {one.name: one.version for one in built.receipt.packages}


def test_build_takes_what_the_lock_names_while_newer_ones_lie_beside(bench: Bench) -> None:
    path = bench.write()
    done = lock(bench, path)
    assert done.path.parent == bench.folder / "locks"
    assert [one.name for one in done.differences] == ["alpha", "beta", "torch"]
    make_wheel(bench.wheels, "beta", "2.0")
    locks = locking.folder_of(path)
    for strict in (True, False):
        built = bench.build(path, locks=locks, locked=strict)
        assert versions(built)["beta"] == "1.0"
    assert f"packages are those of {done.path.name}" in bench.notes
    assert versions(bench.build(path))["beta"] == "2.0"
    assert not bench.left_over()


def test_lock_is_the_same_text_each_time_and_names_no_place(bench: Bench) -> None:
    path = bench.write()
    first = lock(bench, path).path.read_text()
    again = lock(bench, path)
    assert (again.differences, again.path.read_text()) == ((), first)
    assert "://" not in first
    assert str(bench.folder) not in first
    assert not bench.left_over()


def test_upgrade_moves_one_package_and_keeps_the_others(bench: Bench) -> None:
    path = bench.write(require="alpha")
    lock(bench, path)
    make_wheel(bench.wheels, "alpha", "2.0", requires=["beta>=1"])
    make_wheel(bench.wheels, "beta", "2.0")
    assert lock(bench, path, "Beta").differences == (
        Difference(name="beta", before="1.0", after="2.0"),
    )
    assert lock(bench, path).differences == (Difference(name="alpha", before="1.0", after="2.0"),)
    with pytest.raises(UsageError, match="upgrade gamma"):
        lock(bench, path, "gamma")


def test_stale_lock_is_passed_over_with_a_note_and_refused_if_it_must_hold(bench: Bench) -> None:
    path = bench.write()
    lock(bench, path)
    make_wheel(bench.wheels, "alpha", "2.0")
    path = bench.write(require="alpha==2.0")
    locks = locking.folder_of(path)
    with pytest.raises(UserFileError, match="has changed since it was made") as caught:
        bench.build(path, locks=locks, locked=True)
    assert (caught.value.reference, caught.value.exit_code) == ("lock-stale", ExitCode.USAGE)
    assert "envdoctor lock --profile tiny" in caught.value.hint
    assert versions(bench.build(path, locks=locks))["alpha"] == "2.0"
    assert "has changed since it was made" in bench.notes


def test_missing_lock_is_refused_only_if_it_must_hold(bench: Bench) -> None:
    path = bench.write()
    for locks in (locking.folder_of(path), None):
        with pytest.raises(UserFileError) as caught:
            bench.build(path, locks=locks, locked=True)
        assert caught.value.reference == "lock-missing"
    assert bench.build(path, locks=locking.folder_of(path)).is_new


def test_lock_of_another_platform_does_not_hold(bench: Bench) -> None:
    path = bench.write()
    done = lock(bench, path)
    done.path.write_text(done.path.read_text().replace('"linux_', '"other_'))
    with pytest.raises(UserFileError, match="on other_"):
        bench.build(path, locks=locking.folder_of(path), locked=True)


def test_broken_lock_is_named_and_made_anew(bench: Bench) -> None:
    path = bench.write()
    done = lock(bench, path)
    done.path.write_text("[")
    with pytest.raises(UserFileError, match=re.escape(done.path.name)):
        bench.build(path, locks=locking.folder_of(path))
    with pytest.raises(UserFileError, match=re.escape(done.path.name)):
        lock(bench, path, "beta")
    assert lock(bench, path).path.read_text().startswith("lock-version")


def test_file_of_another_hash_is_not_taken_for_the_locked_one(bench: Bench) -> None:
    path = bench.write()
    lock(bench, path)
    make_wheel(bench.wheels, "beta", "1.0", files={"beta.py": "version = 'other'\n"})
    locks = locking.folder_of(path)
    with pytest.raises(IntegrityError, match=r"beta 1\.0") as caught:
        bench.build(path, locks=locks, locked=True)
    assert caught.value.exit_code == ExitCode.INTEGRITY
    assert bench.build(path, locks=locks).is_new
    assert "no source has its files" in bench.notes


def test_any_source_of_the_same_hashes_serves(bench: Bench) -> None:
    path = bench.write()
    lock(bench, path)
    first = bench.build(path, locks=locking.folder_of(path), locked=True)
    other = make_index(bench.folder / "index", sorted(bench.wheels.glob("[ab]*.whl")))
    near = make_index(bench.folder / "near", [bench.wheels / "torch-9.9.0+cpu-py3-none-any.whl"])
    indexes = f"""
[[index]]
name = "near"
url = "{near}"
packages = ["torch"]
[[index]]
name = "main"
default = true
url = "{other}"
"""
    path = bench.write(wheels=False, more=indexes)
    second = bench.build(path, locks=locking.folder_of(path), locked=True, force=True)
    assert second.receipt.id == first.receipt.id
    assert second.receipt.tree == first.receipt.tree
    assert second.receipt.source.startswith("near index")


def test_lock_on_plain_torch_is_not_served_by_tagged_wheels(bench: Bench) -> None:
    plain = make_torch(bench.folder / "p", "9.9.0", cuda="12.8")
    tagged = make_torch(bench.folder / "t", "9.9.0+cu128", cuda="12.8")
    rest = sorted(bench.wheels.glob("[ab]*.whl"))
    main = make_index(bench.folder / "main", [plain, *rest])
    more = f"""
[[index]]
name = "main"
default = true
url = "{main}"
same_variant = {{ torch = ["9.9.0"] }}
"""
    path = bench.write(variant="cu128", wheels=False, more=more)
    lock(bench, path)
    near = make_index(bench.folder / "near", [tagged])
    more += f'[[index]]\nname = "near"\nurl = "{near}"\npackages = ["torch"]\n'
    path = bench.write(variant="cu128", wheels=False, more=more)
    built = bench.build(path, locks=locking.folder_of(path), locked=True)
    assert versions(built)["torch"] == "9.9.0"
    assert versions(bench.build(path))["torch"] == "9.9.0+cu128"


def test_lock_laid_into_its_folder_of_wheels_serves_other_installers(bench: Bench) -> None:
    done = lock(bench, bench.write())
    laid = Path(shutil.copy(done.path, bench.wheels))
    binary, env = uv.find(None, bench.settings).path, bench.folder / "env"
    for words in (
        ["venv", "--python", sys.executable, str(env)],
        ["pip", "sync", "--python", str(env), "--preview-features", "pylock", str(laid)],
    ):
        argv = [str(binary), *words, "--offline", "--no-config", "--cache-dir", str(env) + "-cache"]
        subprocess.run(argv, check=True, capture_output=True)
    assert list(env.glob("lib/python*/site-packages/torch-9.9.0+cpu.dist-info"))


def test_command_line_prints_what_differs_and_refuses_a_stale_lock(bench: Bench) -> None:
    path = bench.write()
    lines = envdoctor(bench, "lock", "--profile", path).stdout.splitlines()
    assert lines[:3] == ["alpha: - -> 1.0", "beta: - -> 1.0", "torch: - -> 9.9.0+cpu"]
    assert Path(lines[3]).is_file()
    assert envdoctor(bench, "lock", "-p", path).stdout.startswith("no package differs")
    make_wheel(bench.wheels, "beta", "2.0")
    done = envdoctor(bench, "lock", "-p", path, "--upgrade", "beta")
    assert done.stdout.startswith("beta: 1.0 -> 2.0\n")
    assert envdoctor(bench, "build", "-p", path, "--locked").returncode == ExitCode.OK
    bench.write(torch="9.9.1")
    done = envdoctor(bench, "build", "-p", path, "--locked")
    assert done.returncode == ExitCode.USAGE
    assert "error[lock-stale]" in done.stderr


def test_lock_follows_what_decides_the_packages_and_nothing_else() -> None:
    base = profile.Profile(
        schema=1, name="p", torch=profile.TorchSection(version="1.0", variant="cpu")
    )
    moved = msgspec.structs.replace(base, sources=profile.SourcesSection(wheelhouse=("/w",)))
    assert locking.digest(base) == locking.digest(moved)
    packages = profile.PackagesSection(require=("x==1",))
    sources = profile.SourcesSection(exclude_newer="2026-01-01T00:00:00Z")
    torch = profile.TorchSection(version="1.0", variant="cu128")
    changed = [
        msgspec.structs.replace(base, packages=packages),
        msgspec.structs.replace(base, sources=sources),
        msgspec.structs.replace(base, torch=torch),
    ]
    assert len({locking.digest(one) for one in (base, *changed)}) == 4


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_lock_holds_for_its_profile_and_names_no_host(path: Path) -> None:
    found = lockfile.read(path)
    assert found is not None
    wanted = profile.load_profile(found.header.profile)
    assert found.header.profile_sha256 == locking.digest(wanted), "run `envdoctor lock`"
    name = f"pylock.{wanted.name}-{found.header.python}-{found.header.platform}.toml"
    assert path.name == name
    text = path.read_text()
    assert "://" not in text
    assert lockfile.text_of(found) == text
    torch = found.lock.find("torch")
    assert torch is not None
    plain = [index.same_variant.get("torch", ()) for index in wanted.index if index.default]
    assert torch.version == f"{wanted.torch.version}+{wanted.torch.variant}" or any(
        torch.version in versions for versions in plain
    )
    forbidden = [
        (one.name, glob)
        for one in found.lock.wheels
        for glob in wanted.packages.forbid
        if fnmatch(one.name, glob)
    ]
    assert not forbidden


def test_each_profile_has_a_lock() -> None:
    assert {lockfile.parse(p.read_text(), name="x").header.profile for p in COMMITTED} == set(
        profile.known_names()
    )
