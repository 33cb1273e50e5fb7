"""Manifests, tree hashes, and what has changed since."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from envdoctor import drift, generations, manifest
from envdoctor.drift import Change, ChangeKind
from envdoctor.errors import ExitCode, VerificationError
from envdoctor.manifest import Entry
from envdoctor.probes.digests import digest_of
from envdoctor.store import Store
from envdoctor.verify import UnfitEnvironmentError
from tests.tiny_wheels import make_wheel
from tests.workbench import ROOT, Bench

if TYPE_CHECKING:
    from pathlib import Path

SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


@pytest.fixture(scope="module")
def sealed_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bench = Bench(tmp_path_factory.mktemp("sealed"))
    bench.build(bench.write())
    return bench.home


@pytest.fixture
def env(sealed_home: Path, tmp_path: Path) -> Path:
    """A home of its own, copied with times and links as they are."""
    shutil.copytree(sealed_home / "envs", tmp_path / "envs", symlinks=True)
    return (tmp_path / "envs/tiny/current").resolve()


def edit(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace("0", "1"))


def replace_keeping_stat(path: Path) -> None:
    status = path.stat()
    edit(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def become_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("version.py")


def relink(env: Path) -> None:
    (env / "bin/python").unlink()
    (env / "bin/python").symlink_to("/no/such/python")


PART = f"{SITE}/torch/part_0.py"
CHANGES = [
    pytest.param(lambda env: (env / PART).unlink(), "missing", PART, "torch", "", id="missing"),
    pytest.param(lambda env: (env / PART).write_text("x"), "changed", PART, "torch",
                 "had 10 bytes, has 1", id="size"),
    pytest.param(lambda env: edit(env / PART), "changed", PART, "torch", "its content",
                 id="content"),
    pytest.param(lambda env: (env / PART).chmod(0o755), "mode", PART, "torch", "was 644, is 755",
                 id="mode"),
    pytest.param(lambda env: become_link(env / PART), "changed", PART, "torch", "another kind",
                 id="kind"),
    pytest.param(lambda env: (env / SITE / "torch/new.so").touch(), "extra",
                 f"{SITE}/torch/new.so", "torch", "", id="extra-in-a-package"),
    pytest.param(lambda env: (env / SITE / "torch/old.pyc").touch(), "extra",
                 f"{SITE}/torch/old.pyc", "torch", "", id="bytecode-without-source"),
    pytest.param(lambda env: (env / SITE / "stray.py").touch(), "extra", f"{SITE}/stray.py", "", "",
                 id="extra-of-nobody"),
    pytest.param(lambda env: (env / "pyvenv.cfg").write_text("home = /\n"), "changed",
                 "pyvenv.cfg", "", "bytes", id="own-file"),
    pytest.param(relink, "changed", "bin/python", "", "now to /no/such/python", id="interpreter"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "path", "owner", "detail"), CHANGES)
def test_change_is_found_by_stat_with_its_owner(
    env: Path, change: object, kind: str, path: str, owner: str, detail: str
) -> None:
    assert drift.find(env).changes == ()
    change(env)  # type: ignore[operator]
    (found,) = drift.find(env).changes
    assert (found.kind, found.path, found.owner) == (kind, path, owner)
    assert detail in found.detail
    assert drift.find(env, deep=True).changes == (found,)


def test_change_that_keeps_size_and_time_is_found_by_hash_only(env: Path) -> None:
    replace_keeping_stat(env / PART)
    assert drift.find(env).changes == ()
    (found,) = drift.find(env, deep=True).changes
    assert found == Change(
        kind=ChangeKind.CHANGED, path=PART, owner="torch", detail="its content, not its size"
    )


def test_new_time_alone_and_compiled_bytecode_are_no_drift(env: Path) -> None:
    os.utime(env / PART)
    (env / SITE / "torch/__pycache__").mkdir()
    (env / SITE / "torch/__pycache__/part_0.cpython-311.pyc").touch()
    assert drift.find(env).changes == ()


def test_interpreter_that_is_gone_is_drift(env: Path) -> None:
    (env / "bin/python").unlink()
    (env / "bin/python").symlink_to("/no/such/python")
    sealed = manifest.make(env)
    (found,) = drift.compare(env, sealed)
    assert "/no/such/python is gone" in found.detail


def test_mode_and_content_of_one_file_are_two_changes(env: Path) -> None:
    edit(env / PART)
    (env / PART).chmod(0o600)
    assert [one.kind for one in drift.find(env).changes] == ["mode", "changed"]


def test_manifest_holds_digests_of_record_and_of_the_disk_alike(env: Path) -> None:
    sealed = manifest.read(Store(env.parents[2], "tiny").manifest(env.name))
    assert sealed is not None
    files = [one for one in sealed.entries if stat.S_ISREG(one.mode)]
    assert {one.path for one in files} >= {PART, "pyvenv.cfg", f"{SITE}/torch/__init__.py"}
    for one in files:
        assert one.digest == digest_of(str(env / one.path), "sha256"), one.path
    assert {one.owner for one in files} == {"", "alpha", "beta", "torch"}
    assert sealed.tree == manifest.tree_of(tuple(reversed(sealed.entries)))
    assert sealed.tree.files == len(sealed.entries)


def test_hash_of_packages_leaves_out_the_environments_own_files(env: Path) -> None:
    before = manifest.make(env).tree
    (env / "pyvenv.cfg").write_text("home = /elsewhere\n")
    after = manifest.make(env).tree
    assert before.packages == after.packages
    assert before.environment != after.environment
    (env / PART).chmod(0o755)
    assert manifest.make(env).tree.packages != before.packages


def test_paths_that_are_no_utf8_survive(env: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"b\xff.txt")
    (env / odd).write_text("x")
    (env / "ü\n.txt").write_text("y")
    sealed = manifest.make(env)
    manifest.write(sealed, tmp_path / "m")
    assert manifest.read(tmp_path / "m") == sealed
    (env / odd).unlink()
    assert [one.path for one in drift.compare(env, sealed)] == [odd]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"schema": 2}', '{"entries": [[1]], "tree": {}}', "\xff" * 9]
)
def test_unreadable_manifest_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "m").write_text(text, "latin-1")
    assert manifest.read(tmp_path / "m") is None
    assert manifest.read(tmp_path / "absent") is None


def test_manifest_with_any_damage_is_read_or_refused(env: Path, tmp_path: Path) -> None:
    whole = Store(env.parents[2], "tiny").manifest(env.name).read_bytes()
    random = Random(0)  # noqa: S311  damage is no secret
    for _ in range(150):
        text = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            text[random.randrange(len(text))] = random.choice(b'0"[]{},\\x\xff')
        (tmp_path / "m").write_bytes(text[: random.randint(0, len(text)) or None])
        found = manifest.read(tmp_path / "m")
        assert found is None or isinstance(found, manifest.Manifest)


def test_environment_without_manifest_cannot_drift(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="no manifest"):
        drift.find(tmp_path)
    drift.require_none(tmp_path)


def test_tree_tells_files_programs_and_links_apart() -> None:
    def tree(mode: int, digest: str = "sha256=x", path: str = "a") -> str:
        return manifest.tree_of((Entry(path, mode, 1, 1, digest, ""),)).environment

    plain = tree(stat.S_IFREG | 0o644)
    assert plain == tree(stat.S_IFREG | 0o600)
    others = [tree(stat.S_IFREG | 0o755), tree(stat.S_IFLNK | 0o777), tree(stat.S_IFREG, "y"),
              tree(stat.S_IFREG, path="b")]  # fmt: skip
    assert len({plain, *others}) == 5


def test_changed_environment_is_built_anew_and_not_rolled_back_to(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first = bench.build(bench.write())
    replaced = first.path / PART
    edit(replaced)
    second = bench.build(bench.write())
    assert second.is_new
    assert f"it has changed since it was built: changed {PART}" in bench.notes
    with pytest.raises(UnfitEnvironmentError, match=r"part_0\.py"):
        generations.roll_back(Store(bench.home, "tiny"))


def test_manifest_goes_with_its_generation(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (bench.envs / "receipts").mkdir(parents=True)
    (bench.envs / "receipts/never-finished.manifest").touch()
    for _ in range(3):
        bench.build(bench.write(), force=True)
    names = {path.stem for path in bench.envs.glob("receipts/*.manifest")}
    assert names == {path.name for path in bench.envs.iterdir() if not path.is_symlink()} - {
        "receipts"
    }


def test_scripts_of_packages_have_their_owner(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    entry_points = "[console_scripts]\nalpha = alpha:main\n"
    files = {
        "alpha.py": "def main(): pass\n",
        "alpha-1.0.dist-info/entry_points.txt": entry_points,
    }
    make_wheel(bench.wheels, "alpha", "1.0", files=files)
    built = bench.build(bench.write())
    (built.path / "bin/alpha").unlink()
    (found,) = drift.find(built.path).changes
    assert (found.path, found.owner) == ("bin/alpha", "alpha")


def check(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "envdoctor", "check", "--drift", *arguments],
        cwd=ROOT,
        env={**os.environ, "ENVDOCTOR_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("option", ["--facts=x", "--select=x", "--probe", "--redact", "--all"])
def test_option_that_a_comparison_does_not_heed_is_refused(env: Path, option: str) -> None:
    done = check(option, home=env.parents[2])
    assert done.returncode == ExitCode.USAGE
    assert f"{option.partition('=')[0]}: not with --drift" in done.stderr


def test_many_changes_of_a_package_are_counted(env: Path) -> None:
    shutil.rmtree(env / SITE / "torch")
    lines = check(home=env.parents[2]).stdout.splitlines()
    assert len(lines) == 12
    assert lines[-2].split() == ["torch", "and", "32", "more;", "--verbose", "lists", "all"]
    assert len(check("--verbose", home=env.parents[2]).stdout.splitlines()) == 43


def test_command_line_exits_1_on_drift_and_names_the_owner(env: Path) -> None:
    home = env.parents[2]
    done = check(home=home)
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    assert "nothing has changed" in done.stdout
    replace_keeping_stat(env / PART)
    assert check("--profile", "tiny", home=home).returncode == ExitCode.OK
    done = check("--deep", "--prefix", str(home / "envs/tiny/current"), home=home)
    assert done.returncode == ExitCode.PROBLEM
    first, last = done.stdout.splitlines()
    assert first.split()[:3] == ["torch", "changed", f"{PART}:"]
    assert "1 change in torch" in last
    found = json.loads(check("--deep", "--format", "json", home=home).stdout)
    assert (found["is_clean"], found["deep"], found["prefix"]) == (False, True, str(env))
    assert [one["owner"] for one in found["changes"]] == ["torch"]
    receipt = json.loads((env.parent / f"receipts/{env.name}.json").read_text())
    assert found["tree"] == receipt["tree"]
    assert msgspec.convert(found["tree"], manifest.Tree).files == found["tree"]["files"]


def test_drift_in_other_formats_and_places_is_refused(env: Path, tmp_path: Path) -> None:
    assert check("--format", "sarif", home=env.parents[2]).returncode == ExitCode.USAGE
    assert check("--prefix", "/no/such", home=env.parents[2]).returncode == ExitCode.USAGE
    done = check(home=tmp_path / "empty")
    assert done.returncode == ExitCode.PROBLEM
    assert "no environment is built" in done.stderr
