"""Generations, links, the trash, leases and the lock."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from envdoctor import build_lock, filesystem, store
from envdoctor.build_lock import Holder, held
from envdoctor.errors import BusyError, ExitCode, SpaceError
from envdoctor.store import Store

DEAD = Holder(host=socket.gethostname(), pid=2**22 + 1, started=1, since="then")


@pytest.fixture
def place(tmp_path: Path) -> Store:
    found = Store(tmp_path / "home", "tiny")
    store.make_folders(found)
    return found


def add(place: Store, generation: str, *, is_sealed: bool = True, age: int = 0) -> Path:
    staged = store.new_staging(place)
    (staged / "env").mkdir()
    path = store.put(place, staged / "env", generation)
    if is_sealed:
        receipt = place.receipt(generation)
        receipt.write_text("{}")
        os.utime(receipt, (10**9 - age, 10**9 - age))
    return path


def test_links_follow_the_generations(place: Store) -> None:
    for name in ("one", "two", "three"):
        add(place, name)
        store.make_current(place, name)
    assert (place.linked("current"), place.linked("previous")) == ("three", "two")
    store.make_current(place, "three")
    assert place.linked("previous") == "two"


def test_link_to_nothing_means_nothing(place: Store) -> None:
    assert place.linked("current") is None
    (place.envs / "current").symlink_to("gone")
    assert place.linked("current") is None
    assert store.known_profiles(place.home) == []


def test_profile_made_current_last_comes_first(tmp_path: Path) -> None:
    for name in ("a", "c", "b"):
        one = Store(tmp_path, name)
        store.make_folders(one)
        add(one, "g")
        store.make_current(one, "g")
    assert store.known_profiles(tmp_path) == ["b", "c", "a"]


def test_clean_throws_away_what_was_never_finished(place: Store) -> None:
    add(place, "good")
    store.make_current(place, "good")
    add(place, "old")
    add(place, "unsealed", is_sealed=False)
    (place.envs / ".current.tmp").symlink_to("good")
    (place.envs / "receipts/.x.json.tmp").touch()
    left = store.new_staging(place)
    assert set(store.clean(place)) >= {"unsealed", left.name}
    assert sorted(place.generations()) == ["good", "old"]
    assert not list(place.staging.iterdir())
    assert not list(place.envs.rglob(".*.tmp"))


def test_torn_downloads_go_unless_some_uv_works_in_the_cache(place: Store) -> None:
    (place.cache / ".tmpAbc").mkdir()
    with (place.cache / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        store.clean(place)
        assert (place.cache / ".tmpAbc").exists()
    store.clean(place)
    assert not (place.cache / ".tmpAbc").exists()


def test_current_without_a_receipt_is_never_thrown_away(place: Store) -> None:
    add(place, "good", is_sealed=False)
    store.make_current(place, "good")
    store.clean(place)
    assert place.linked("current") == "good"


def test_prune_keeps_current_previous_and_then_the_newest(place: Store) -> None:
    for age, name in enumerate(["e", "d", "c", "b", "a"]):
        add(place, name, age=age)
    store.make_current(place, "a")
    store.make_current(place, "b")
    assert store.prune(place, 3) == []
    assert sorted(place.generations()) == ["a", "b", "e"]


def test_leased_generation_stays_until_its_last_process_ends(place: Store) -> None:
    for name in ("old", "older", "new"):
        add(place, name)
    store.make_current(place, "old")
    store.make_current(place, "new")
    code = "import sys; sys.stdin.read()"
    with store.lease(place, "older") as descriptor:
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, pass_fds=[descriptor]
        )
    assert store.prune(place, 2) == ["older"]
    child.communicate(b"")
    assert store.prune(place, 2) == []
    assert sorted(place.generations()) == ["new", "old"]


def test_trash_is_emptied(place: Store) -> None:
    store.discard(place, add(place, "x"))
    store.discard(place, place.envs / "never-was")
    assert len(list(place.trash.iterdir())) == 1
    store.empty_trash(place)
    assert not list(place.trash.iterdir())


def test_name_of_a_generation_is_never_used_twice(place: Store) -> None:
    assert store.unused_generation(place, "x") == "x"
    add(place, "x")
    assert store.unused_generation(place, "x") == "x-2"
    store.discard(place, place.envs / "x")
    assert store.unused_generation(place, "x") == "x-2"


def test_only_the_newest_logs_stay(place: Store) -> None:
    (place.home / "logs").mkdir()
    for n in range(15):
        (place.home / f"logs/tiny-{n:02}.log").touch()
    (place.home / "logs/other-01.log").touch()
    store.new_log(place).touch()
    names = sorted(path.name for path in place.home.glob("logs/tiny-*"))
    assert len(names) == 10
    assert names[0] == "tiny-06.log"


def test_lock_is_free_again_after_use(tmp_path: Path) -> None:
    for _ in range(2):
        with held(tmp_path / "locks/x.json", what="profile x"):
            pass


def test_lock_says_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with (
        held(path, what="profile x"),
        pytest.raises(BusyError) as caught,
        held(path, what="profile x"),
    ):
        pass
    assert caught.value.exit_code == ExitCode.BUSY
    assert f"host {socket.gethostname()}, pid {os.getpid()}, since 20" in caught.value.message


@pytest.mark.parametrize(
    ("host", "pid"),
    [
        pytest.param(socket.gethostname(), 2**22 + 1, id="dead-process"),
        pytest.param(socket.gethostname(), os.getpid(), id="pid-used-again"),
        pytest.param("another-container", 1, id="dead-container-on-a-local-disk"),
    ],
)
def test_lock_of_a_dead_holder_is_free(tmp_path: Path, host: str, pid: int) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(msgspec.json.encode(Holder(host=host, pid=pid, started=1, since="then")))
    with held(path, what="profile x"):
        assert b'"pid":%d' % os.getpid() in path.read_bytes()


def test_lock_of_another_host_on_a_network_file_system_holds(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("30 22 0:30 / / rw - nfs4 server:/x rw\n")
    path = tmp_path / "x.json"
    path.write_bytes(msgspec.json.encode(Holder(host="far", pid=7, started=1, since="then")))
    with pytest.raises(BusyError, match="host far, pid 7") as caught:
        build_lock.held(path, what="profile x", mounts=mounts).__enter__()
    assert str(path) in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00\xff"])
def test_lock_file_with_other_content_is_free(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with held(path, what="profile x"):
        pass


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:30 / /mnt/my\\040data rw - nfs4 server:/x rw
31 22 0:31 / /mnt rw - xfs /dev/sdb rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind", "is_network"),
    [("/", "ext4", False), ("/mnt", "xfs", False), ("/mntx", "ext4", False)],
)
def test_file_system_is_that_of_the_longest_mount_point(
    tmp_path: Path, path: str, kind: str, is_network: bool
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert filesystem.kind(Path(path), mounts=mounts) == kind
    assert bool(filesystem.NETWORK.fullmatch(kind)) == is_network


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "fuse.sshfs", "9p", "cifs"])
def test_shared_file_systems_are_known(kind: str) -> None:
    assert filesystem.NETWORK.fullmatch(kind)


def test_unreadable_mounts_say_nothing(tmp_path: Path) -> None:
    assert filesystem.kind(tmp_path, mounts=tmp_path / "gone") == ""


def test_space_is_asked_where_the_folder_will_be(tmp_path: Path) -> None:
    filesystem.require_space(tmp_path / "not/yet", need=1, parts="")
    with pytest.raises(SpaceError, match=r"needs 1000000000.0 GB in .*: 1 EB of air"):
        filesystem.require_space(tmp_path, need=10**18, parts="1 EB of air")


def test_tree_bytes_counts_blocks(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"x" * 100_000)
    (tmp_path / "a/dangling").symlink_to("nowhere")
    assert 100_000 <= filesystem.tree_bytes(tmp_path) < 200_000
    assert filesystem.tree_bytes(tmp_path / "gone") == 0


HOLD = """
import sys
from pathlib import Path
from envdoctor.build_lock import held
path, mounts, log = map(Path, sys.argv[1:4])
for _ in range(int(sys.argv[4])):
    with held(path, what="x", waiting=lambda text: None, mounts=mounts), log.open("a") as stream:
        stream.write("in ")
        stream.flush()
        stream.write("out ")
"""


@pytest.mark.parametrize("kind", ["ext4", "nfs4"])
def test_of_many_processes_one_holds_the_lock(tmp_path: Path, kind: str) -> None:
    mounts, path, log = (tmp_path / name for name in ("mountinfo", "x.json", "log"))
    mounts.write_text(f"30 22 0:30 / / rw - {kind} server:/x rw\n")
    path.write_bytes(msgspec.json.encode(DEAD))
    argv = [sys.executable, "-c", HOLD, str(path), str(mounts), str(log), "3"]
    processes = [subprocess.Popen(argv, cwd=Path(__file__).parents[1]) for _ in range(5)]
    assert [process.wait(60) for process in processes] == [0] * 5
    assert log.read_text() == "in out " * 15
    assert {one.name for one in tmp_path.iterdir()} - {"x.json"} == {"mountinfo", "log"}


def test_waiting_for_the_lock_names_its_holder_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    told: list[str] = []
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom envdoctor.build_lock import held\n"
        "with held(Path(sys.argv[1]), what='x'):\n    print('held', flush=True)\n    time.sleep(1)"
    )
    argv = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(
        argv, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with held(path, what="profile x", waiting=told.append):
            assert process.wait(5) == 0
    (line,) = told
    assert line.startswith(f"waiting: another build of profile x runs: host {socket.gethostname()}")
    assert f"pid {process.pid}" in line


def test_lock_that_somebody_removed_meanwhile_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with held(path, what="x"):
        path.unlink()
        with held(path, what="x"):
            assert path.exists()
