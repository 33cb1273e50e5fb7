"""Listing, rolling back, pruning, and running in a generation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from envdoctor import generations, job, store
from envdoctor.build_lock import held
from envdoctor.errors import BusyError, ExitCode, UsageError, VerificationError
from envdoctor.store import Store
from envdoctor.talk import silent
from envdoctor.verify import UnfitEnvironmentError
from tests.workbench import ROOT, Bench, envdoctor, with_own_mounts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def place_of(bench: Bench) -> Store:
    return Store(bench.home, "tiny")


def test_rollback_flips_to_the_previous_and_back(bench: Bench) -> None:
    first = bench.build(bench.write())
    second = bench.build(bench.write(torch="9.9.1"))
    assert generations.roll_back(place_of(bench)) == first.path
    assert bench.torch_of_current() == "9.9.0+cpu"
    assert generations.roll_back(place_of(bench)) == second.path
    assert bench.torch_of_current() == "9.9.1+cpu"


def test_build_after_a_rollback_says_that_the_newer_one_is_current_again(bench: Bench) -> None:
    first = bench.build(bench.write())
    second = bench.build(bench.write(torch="9.9.1"))
    generations.roll_back(place_of(bench))
    assert bench.build(bench.write(torch="9.9.1")).path == second.path
    assert f"it becomes current again, {first.path.name} is the previous one" in bench.notes


def test_rollback_to_a_damaged_environment_is_refused(bench: Bench) -> None:
    first = bench.build(bench.write())
    second = bench.build(bench.write(torch="9.9.1"))
    next(first.path.glob("lib/python*/site-packages/torch/part_7.py")).unlink()
    with pytest.raises(UnfitEnvironmentError, match="is damaged") as caught:
        generations.roll_back(place_of(bench))
    assert caught.value.exit_code == ExitCode.PROBLEM
    assert bench.current.resolve() == second.path


def test_link_that_leads_elsewhere_is_none_and_costs_no_generation(bench: Bench) -> None:
    built = {bench.build(bench.write()).path, bench.build(bench.write(torch="9.9.1")).path}
    bench.current.unlink()
    bench.current.symlink_to(bench.wheels)
    with pytest.raises(VerificationError, match="no environment of profile tiny is built"):
        generations.current_of(place_of(bench))
    generations.prune(place_of(bench), keep=2)
    assert all(path.is_dir() for path in built)


def test_rollback_without_a_previous_one_is_a_usage_error(bench: Bench) -> None:
    bench.build(bench.write())
    with pytest.raises(UsageError, match="no previous environment"):
        generations.roll_back(place_of(bench))


def test_rollback_waits_for_no_build(bench: Bench) -> None:
    bench.build(bench.write())
    place = place_of(bench)
    with held(place.lock_file, what="profile tiny"), pytest.raises(BusyError):
        generations.roll_back(place)
    with held(place.lock_file, what="profile tiny"), pytest.raises(BusyError):
        generations.prune(place, keep=2)


@pytest.mark.parametrize("name", [None, "cpu", "tiny"])
def test_nothing_built_names_the_command_that_builds(bench: Bench, name: str | None) -> None:
    wanted = bench.write() if name == "tiny" else name
    with pytest.raises(VerificationError) as caught:
        generations.place_of(wanted, bench.settings)
    assert "envdoctor build --profile" in caught.value.hint
    assert generations.listed(bench.settings) == []


def test_list_tells_role_torch_and_use(bench: Bench) -> None:
    first = bench.build(bench.write())
    second = bench.build(bench.write(torch="9.9.1"))
    with store.lease(place_of(bench), first.path.name):
        done = envdoctor(bench, "envs", "list", "--format", "json")
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert (found[second.path.name]["role"], found[first.path.name]["role"]) == (
        "current",
        "previous",
    )
    assert found[first.path.name]["is_in_use"]
    assert not found[second.path.name]["is_in_use"]
    assert found[second.path.name]["torch"] == "9.9.1+cpu"
    lines = envdoctor(bench, "envs").stdout.splitlines()
    assert sorted(line.split()[-1] for line in lines) == sorted([str(first.path), str(second.path)])


def test_looking_at_a_lease_leaves_no_file(bench: Bench) -> None:
    built = bench.build(bench.write())
    assert not store.is_leased(place_of(bench), built.path.name)
    assert not list(bench.home.glob("locks/leases/*"))


def test_prune_goes_through_the_trash_and_spares_what_is_in_use(bench: Bench) -> None:
    more = "[build]\nkeep = 9"
    paths = [bench.build(bench.write(more=more), force=True).path for _ in range(4)]
    with store.lease(place_of(bench), paths[0].name):
        done = envdoctor(bench, "envs", "prune")
    assert "1 deleted, 3 kept" in done.stdout
    assert f"kept {paths[0].name}: a job runs in it" in done.stdout
    assert [path.exists() for path in paths] == [True, False, True, True]
    assert envdoctor(bench, "envs", "prune", "--profile", "tiny").returncode == 0
    assert [path.exists() for path in paths] == [False, False, True, True]
    assert not bench.left_over()


def test_path_is_the_real_folder(bench: Bench) -> None:
    built = bench.build(bench.write())
    for words in (["path"], ["envs", "path"], ["path", "--profile", "tiny"]):
        assert envdoctor(bench, *words).stdout == f"{built.path}\n"


def test_rollback_of_the_command_line_prints_the_folder(bench: Bench) -> None:
    first = bench.build(bench.write())
    bench.build(bench.write(torch="9.9.1"))
    done = envdoctor(bench, "rollback", "--profile", "tiny")
    assert (done.returncode, done.stdout) == (0, f"{first.path}\n")


SHOW = (
    "import json, os, sys; print(json.dumps([sys.prefix, os.environ.get('VIRTUAL_ENV'), "
    "os.environ.get('A'), os.environ.get('PYTHONPATH'), sys.argv[1:]])); sys.exit(7)"
)


def test_run_is_in_the_real_folder_with_the_profiles_variables(bench: Bench) -> None:
    built = bench.build(bench.write(more='[env]\nset = { A = "1" }'))
    words = ("run", "--profile", "tiny", "--", "python", "-B", "-c", SHOW, "--profile", "x")
    done = envdoctor(bench, *words, PYTHONPATH=str(ROOT))
    assert done.returncode == 7
    prefix = str(built.path)
    assert json.loads(done.stdout) == [prefix, prefix, "1", None, ["--profile", "x"]]
    assert "not passed on: PYTHONPATH" in done.stderr
    without_dashes = envdoctor(bench, "run", "python", "-B", "-c", SHOW)
    assert json.loads(without_dashes.stdout)[0] == prefix


def test_unknown_program_is_a_usage_error(bench: Bench) -> None:
    bench.build(bench.write())
    with pytest.raises(UsageError, match="no such program"):
        job.run(["no-such-thing"], profile=None, settings=bench.settings, talk=silent)


def test_environment_of_a_running_program_outlives_rebuilds(bench: Bench) -> None:
    first = bench.build(bench.write())
    flag = bench.folder / "started"
    code = f"import pathlib, time; pathlib.Path({str(flag)!r}).touch(); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-m", "envdoctor", "run", "--", "python", "-B", "-c", code],
        cwd=ROOT,
        env={**os.environ, "ENVDOCTOR_HOME": str(bench.home)},
    )
    deadline = time.monotonic() + 20
    while not flag.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for _ in range(2):
        bench.build(bench.write(), force=True)
    assert first.path.exists()
    process.terminate()
    assert process.wait(timeout=20) == 128 + 15
    generations.prune(place_of(bench), keep=2)
    assert not first.path.exists()


READ_ONLY = """
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
shift
exec "$@"
"""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["path"], 0, "envs/tiny"),
        (["run", "--", "python", "-c", "print('ran')"], 0, "ran"),
        (["check", "--drift"], 0, "nothing has changed"),
        (["rollback"], 7, "cannot lock "),
        (["envs", "prune"], 7, "cannot lock "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_read_only_home_can_be_used_and_not_changed(
    bench: Bench, arguments: list[str], code: int, says: str
) -> None:
    bench.build(bench.write())
    done = subprocess.run(
        [
            *with_own_mounts(READ_ONLY),
            str(bench.home),
            sys.executable,
            "-m",
            "envdoctor",
            *arguments,
        ],
        cwd=ROOT,
        env={**os.environ, "ENVDOCTOR_HOME": str(bench.home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert says in done.stdout + done.stderr
