"""Wheels carried to a machine without network, listed, pruned; and what is read out of them."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from envdoctor import build, bundle, inspection, locking, profile
from envdoctor.cli import app
from envdoctor.errors import EnvdoctorError, IntegrityError, UsageError, UserFileError
from envdoctor.pylock import Wheel
from envdoctor.talk import Stages, silent
from envdoctor.wheelhouse import Wheelhouse
from tests.index_server import serving_all
from tests.tiny_wheels import make_torch, make_wheel
from tests.workbench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "here")


def export(bench: Bench, target: Path) -> int:
    path = bench.write()
    request = build.BuildRequest(profile=profile.load_profile(path), locks=locking.folder_of(path))
    return bundle.export(request, target, settings=bench.settings, talk=bench.events.append)


def bring_in(source: Path, home: Path) -> bundle.Imported:
    return bundle.bring_in(source, Wheelhouse(home / "wheels"), Stages(silent))


def members(archive: Path) -> list[str]:
    with tarfile.open(archive) as opened:
        return opened.getnames()


@pytest.fixture
def exported(bench: Bench, tmp_path: Path) -> Path:
    """A bundle as a folder."""
    export(bench, tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.mark.parametrize("name", ["bundle.tar", "bundle"])
def test_what_is_exported_builds_elsewhere_without_network(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    first = bench.build(bench.write())
    assert export(bench, tmp_path / name) == 3
    assert not bench.left_over()
    there = Bench(tmp_path / "there")
    path = there.write(wheels=False)
    done = bring_in(tmp_path / name, there.home)
    assert (done.profile, done.num_wheels, done.num_new) == ("tiny", 3, 3)
    assert bring_in(tmp_path / name, there.home).num_new == 0
    built = there.build(path, offline=True, locked=True, locks=locking.folder_of(path))
    assert built.receipt.tree == first.receipt.tree
    assert {one.source for one in built.receipt.packages} == {str(tmp_path / name)}
    assert there.torch_of_current() == "9.9.0+cpu"


def test_export_is_the_same_file_each_time(bench: Bench, tmp_path: Path) -> None:
    contents = []
    for name in ("a.tar", "b.tar"):
        export(bench, tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    names = members(tmp_path / "a.tar")
    assert names[0].startswith("pylock.tiny-cp3")
    assert all("/" not in name for name in names)


def test_export_over_something_of_the_other_kind_is_a_usage_error(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "x.tar").mkdir()
    (tmp_path / "y").touch()
    for name, found in (("x.tar", "a folder"), ("y", "a file")):
        with pytest.raises(UsageError, match=f"found {found}, wanted"):
            export(bench, tmp_path / name)


def test_export_fetches_what_is_not_here(bench: Bench, tmp_path: Path) -> None:
    with serving_all({"simple": bench.wheels}) as server:
        more = f'[[index]]\nname = "main"\nurl = "{server.url()}"\npackages = ["torch", "alpha"]'
        more += f'\n[[index]]\nname = "rest"\ndefault = true\nurl = "{server.url()}"'
        path = bench.write(wheels=False, more=more)
        request = build.BuildRequest(profile=profile.load_profile(path))
        target = tmp_path / "x.tar"
        assert bundle.export(request, target, settings=bench.settings, talk=silent) == 3
    assert max(members(target)) == "torch-9.9.0+cpu-py3-none-any.whl"


def _tar(source: Path, target: Path, change: Callable[[tarfile.TarFile], None]) -> Path:
    with tarfile.open(target, "w") as archive:
        for path in sorted(source.iterdir()):
            archive.add(path, path.name)
        change(archive)
    return target


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


HOSTILE = [
    pytest.param(_member("../evil.whl"), id="parent"),
    pytest.param(_member("/tmp/evil.whl"), id="absolute"),
    pytest.param(_member("x/y.whl"), id="folder"),
    pytest.param(_member("evil.whl", tarfile.SYMTYPE, "/etc/passwd"), id="symbolic-link"),
    pytest.param(_member("evil.whl", tarfile.LNKTYPE, "../x"), id="hard-link"),
    pytest.param(_member("evil.whl", tarfile.FIFOTYPE), id="fifo"),
    pytest.param(_member("evil.whl", tarfile.CHRTYPE), id="device"),
    pytest.param(_member("alpha-1.0-py3-none-any.whl"), id="twice"),
]


@pytest.mark.parametrize("member", HOSTILE)
def test_archive_with_anything_but_plain_files_is_refused(
    exported: Path, tmp_path: Path, member: tarfile.TarInfo
) -> None:
    source = _tar(exported, tmp_path / "evil.tar", lambda archive: archive.addfile(member))
    before = sorted(tmp_path.rglob("evil*"))
    with pytest.raises(IntegrityError, match="wanted plain files"):
        bring_in(source, tmp_path / "there")
    assert sorted(tmp_path.rglob("evil*")) == before


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


DAMAGED = [
    pytest.param("alpha*", _cut, IntegrityError, "alpha.*has sha256", id="cut"),
    pytest.param("alpha*", _grow, IntegrityError, "alpha.*has sha256", id="grown"),
    pytest.param("beta*", Path.unlink, IntegrityError, "lacks beta", id="missing-wheel"),
    pytest.param("pylock*", Path.unlink, UserFileError, "wanted one lock", id="no-lock"),
    pytest.param("pylock*", _grow, UserFileError, "pylock", id="broken-lock"),
]


@pytest.mark.parametrize("as_archive", [True, False], ids=["tar", "folder"])
@pytest.mark.parametrize(("pattern", "damage", "kind", "words"), DAMAGED)
def test_damaged_bundle_is_refused_and_leaves_no_lock(  # noqa: PLR0913  a table's columns
    exported: Path,
    tmp_path: Path,
    pattern: str,
    damage: Callable[[Path], None],
    kind: type[EnvdoctorError],
    words: str,
    *,
    as_archive: bool,
) -> None:
    (path,) = exported.glob(pattern)
    damage(path)
    source = _tar(exported, tmp_path / "x.tar", lambda _: None) if as_archive else exported
    with pytest.raises(kind, match=words):
        bring_in(source, tmp_path / "there")
    house = Wheelhouse(tmp_path / "there/wheels")
    assert not house.locks.exists()
    assert all(one.is_complete and "alpha" not in one.path.name for one in house.listed())


@pytest.mark.parametrize("content", [b"", b"hello", b"\x1f\x8b\x08nonsense", b"\0" * 5000])
def test_file_that_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "x.tar"
    source.write_bytes(content)
    with pytest.raises(EnvdoctorError, match=r"x\.tar"):
        bring_in(source, tmp_path / "there")


@given(start=st.integers(0, 9000), patch=st.binary(min_size=1, max_size=600))
def test_any_damage_to_an_archive_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, start: int, patch: bytes
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    wheel = make_wheel(folder / "bundle", "alpha", "1.0")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    file = f'"{wheel.name}"'
    (folder / "bundle/pylock.x.toml").write_text(
        'lock-version = "1.0"\n[[packages]]\nname = "alpha"\nversion = "1.0"\n'
        f"wheels = [{{ name = {file}, path = {file}, size = {wheel.stat().st_size}, "
        f'hashes = {{ sha256 = "{sha256}" }} }}]\n[tool.envdoctor]\nprofile = "p"\n'
        f'profile-sha256 = "{sha256}"\npython = "cp311"\nplatform = "linux_x86_64"\n'
    )
    source = _tar(folder / "bundle", folder / "x.tar", lambda _: None)
    content = source.read_bytes()
    source.write_bytes(content[:start] + patch + content[start + len(patch) :])
    try:
        bring_in(source, folder / "there")
    except EnvdoctorError:
        pass
    else:
        (held,) = Wheelhouse(folder / "there/wheels").listed()
        assert hashlib.sha256(held.path.read_bytes()).hexdigest() == held.sha256


def test_missing_bundle_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserFileError, match="no such file"):
        bring_in(tmp_path / "nowhere.tar", tmp_path)


def test_list_and_prune_tell_who_needs_what(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVDOCTOR_HOME", str(bench.home))
    with serving_all({"simple": bench.wheels}) as server:
        more = f'[[index]]\nname = "main"\nurl = "{server.url()}"\npackages = ["torch"]'
        more += f'\n[[index]]\nname = "rest"\ndefault = true\nurl = "{server.url()}"'
        bench.build(bench.write(wheels=False, more=more))
    stray = Wheelhouse(bench.home / "wheels").root / ("0" * 64) / "gamma-1.0-py3-none-any.whl.part"
    stray.parent.mkdir()
    stray.write_bytes(b"x" * 10**6)
    run = CliRunner().invoke
    listed = run(app, ["wheelhouse", "list"]).stdout
    assert [line.split()[3:] for line in listed.splitlines()[:-1]] == [
        ["tiny", "alpha-1.0-py3-none-any.whl"],
        ["tiny", "beta-1.0-py3-none-any.whl"],
        ["-", "gamma-1.0-py3-none-any.whl.part"],
        ["tiny", "torch-9.9.0+cpu-py3-none-any.whl"],
    ]
    assert run(app, ["wheelhouse", "prune"]).stdout == "1 files deleted, 1.0 MB\n"
    assert not stray.parent.exists()
    assert len(Wheelhouse(bench.home / "wheels").listed()) == 3


def wheel_of(path: Path) -> Wheel:
    name, version, *_ = path.name.split("-")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel(
        name=name, version=version, file=path.name, sha256=sha256, size=None, source="here"
    )


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        pytest.param({"x.py": "1"}, {"x.py": "2"}, "x.py", id="different"),
        pytest.param({"x.py": "1"}, {"x.py": "1"}, None, id="equal"),
        pytest.param({"x.py": "1"}, {"y.py": "2"}, None, id="apart"),
        pytest.param({"x.py": "1"}, {"b-1.data/purelib/x.py": "2"}, "x.py", id="purelib"),
        pytest.param({"x.py": "1"}, {"b-1.data/platlib/x.py": "1"}, None, id="platlib-equal"),
        pytest.param(
            {"a-1.data/scripts/run": "1"}, {"b-1.data/scripts/run": "2"}, "bin/run", id="scripts"
        ),
        pytest.param(
            {"a-1.data/data/bin/run": "1"}, {"b-1.data/scripts/run": "2"}, "bin/run", id="data"
        ),
        pytest.param(
            {"a-1.data/data/share/x": "1"}, {"b-1.data/data/share/x": "2"}, "share/x", id="share"
        ),
        pytest.param(
            {"a-1.data/headers/x.h": "1"}, {"b-1.data/headers/x.h": "2"}, None, id="headers"
        ),
        pytest.param({"share/x": "1"}, {"b-1.data/data/share/x": "2"}, None, id="not-the-same"),
        pytest.param(
            {"x.py": "1"},
            {"b-1.data/data/lib/python3.11/site-packages/x.py": "2"},
            "x.py",
            id="packages-as-data",
        ),
        pytest.param(
            {"a-1.dist-info/entry_points.txt": "[console_scripts]\nrun = a:main\n"},
            {"b-1.dist-info/entry_points.txt": "[console_scripts]\nrun=b:main\n"},
            "bin/run",
            id="programs",
        ),
        pytest.param(
            {"a-1.dist-info/entry_points.txt": "[console_scripts]\nrun = a:main\n"},
            {"b-1.dist-info/entry_points.txt": "[other]\nrun = b:main\n"},
            None,
            id="plugins",
        ),
        pytest.param(
            {"a-1.dist-info/entry_points.txt": "nonsense"}, {"x.py": ""}, None, id="no-points"
        ),
    ],
)
def test_files_that_collide_are_told_from_those_that_do_not(
    tmp_path: Path, one: dict[str, str], two: dict[str, str], expected: str | None
) -> None:
    contents = {}
    for name, files in (("a", one), ("b", two)):
        path = make_wheel(tmp_path, name, "1", files=files)
        contents[name] = inspection.read(wheel_of(path), path)
    if expected is None:
        inspection.require_no_collisions(contents)
        return
    with pytest.raises(IntegrityError, match=f"a and b both own .*{expected}"):
        inspection.require_no_collisions(contents)


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "a/../../x", "a-1.data/data/../../x"])
def test_wheel_that_would_write_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    path = make_wheel(tmp_path, "a", "1", files={name: "x"})
    with pytest.raises(IntegrityError, match="wanted files inside"):
        inspection.read(wheel_of(path), path)


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("a-1.data/data/pyvenv.cfg", True),
        ("a-1.data/data/bin/activate", True),
        ("a-1.data/scripts/activate.fish", True),
        ("a-1.data/scripts/python3.11", True),
        ("a-1.data/scripts/python-thing", False),
        ("pyvenv.cfg", False),
    ],
)
def test_wheel_that_would_overwrite_the_environment_itself_is_refused(
    tmp_path: Path, name: str, *, is_taken: bool
) -> None:
    path = make_wheel(tmp_path, "a", "1", files={name: "x"})
    if not is_taken:
        assert len(inspection.read(wheel_of(path), path).files) == 4
        return
    with pytest.raises(IntegrityError, match="would overwrite"):
        inspection.read(wheel_of(path), path)


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        pytest.param("cuda = '12.8'", "cu128", id="cuda"),
        pytest.param("__version__ = '1'\ncuda: Optional[str] = None", "cpu", id="cpu"),
        pytest.param("cuda = None\nhip = '6.2'", "no CUDA build (6.2)", id="rocm"),
        pytest.param("x = (", "", id="not-python"),
    ],
)
def test_variant_is_read_out_of_the_wheel(tmp_path: Path, text: str, variant: str) -> None:
    path = make_wheel(tmp_path, "torch", "1", files={"torch/version.py": text})
    assert inspection.read(wheel_of(path), path).torch_variant == variant


def test_torch_without_a_version_file_is_left_to_the_checks(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "torch", "1")
    assert inspection.read(wheel_of(path), path).torch_variant == ""


@given(st.binary(max_size=400))
def test_any_bytes_are_a_wheel_or_an_integrity_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("w") / "a-1-py3-none-any.whl"
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match="cannot be read"):
        inspection.read(wheel_of(path), path)


@given(start=st.integers(0, 1500), patch=st.binary(min_size=1, max_size=40))
def test_any_damage_to_a_wheel_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, start: int, patch: bytes
) -> None:
    path = make_torch(tmp_path_factory.mktemp("w"), "9.9.0")
    content = path.read_bytes()
    path.write_bytes(content[:start] + patch + content[start + len(patch) :])
    try:
        inspection.read(wheel_of(path), path)
    except IntegrityError as error:
        assert error.reference in {"wheel-not-readable", "wheel-leads-out"}


@pytest.mark.parametrize("change", [{"file": "../x.whl"}, {"sha256": "../../x"}, {"sha256": ""}])
def test_no_name_leads_out_of_the_wheelhouse(tmp_path: Path, change: dict[str, str]) -> None:
    path = make_wheel(tmp_path, "a", "1")
    wheel = msgspec.structs.replace(wheel_of(path), **change)
    with pytest.raises(IntegrityError, match="hexadecimal"):
        Wheelhouse(tmp_path).path(wheel)


def test_encrypted_wheel_is_refused(tmp_path: Path) -> None:
    path = make_torch(tmp_path, "9.9.0")
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as archive:
        offset = archive.getinfo("torch/version.py").header_offset
    content[offset + 6] |= 1
    central = content.find(b"PK\x01\x02")
    while content[central + 46 :].startswith(b"torch/version.py") is False:
        central = content.find(b"PK\x01\x02", central + 1)
    content[central + 8] |= 1
    path.write_bytes(bytes(content))
    with pytest.raises(IntegrityError, match="encrypted"):
        inspection.read(wheel_of(path), path)
