from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import CacheFolder, CachesFact, Fact, Mount, StorageFact
from envdoctor.probes.storage import parse_mounts
from envdoctor.verdict import Ok, Severity
from tests.machines import installed, nvidia, problem, severity

MIB = 1024**2
ROOT = Mount(path="/", kind="ext4", options="rw,relatime")
HARDENED = Mount(path="/tmp", kind="tmpfs", options="rw,nosuid,nodev,noexec")
CACHES = CachesFact(
    folders=(
        CacheFolder(kind="inductor", path="/tmp/torchinductor_user"),
        CacheFolder(kind="triton", path="/home/user/.triton/cache"),
    )
)


@pytest.mark.parametrize(
    ("mounts", "facts", "expected"),
    [
        pytest.param((ROOT, HARDENED), [], Severity.ERROR, id="noexec"),
        pytest.param((ROOT, HARDENED), [nvidia(gpus=())], Severity.WARNING, id="without-gpu"),
        pytest.param((ROOT,), [], Ok, id="exec"),
        pytest.param((), [], Ok, id="unknown"),
        pytest.param(
            (ROOT, HARDENED, Mount(path="/tmp", kind="ext4", options="rw")),
            [],
            Ok,
            id="mounted-over",
        ),
        pytest.param(
            (ROOT, Mount(path="/tm", kind="tmpfs", options="noexec")), [], Ok, id="another-folder"
        ),
    ],
)
def test_cache_folder_not_executable(
    mounts: tuple[Mount, ...], facts: list[Fact], expected: object
) -> None:
    storage = StorageFact(mounts=mounts)
    assert severity("cache-folder-not-executable", CACHES, storage, *facts) == expected


def test_cache_of_triton_does_not_matter_without_triton() -> None:
    home = StorageFact(mounts=(Mount(path="/home", kind="nfs", options="rw,noexec"),))
    check = "cache-folder-not-executable"
    assert severity(check, CACHES, home) is Severity.ERROR
    assert severity(check, CACHES, home, installed("torch==2.10.0")) is Ok


def test_cache_is_moved_to_the_home() -> None:
    found = problem("cache-folder-not-executable", CACHES, StorageFact(mounts=(ROOT, HARDENED)))
    assert found.culprit == "/tmp"
    assert found.remedy.commands == (
        "export TORCHINDUCTOR_CACHE_DIR=/home/user/.cache/torch-compile/inductor",
    )


@pytest.mark.parametrize(("free", "expected"), [(256 * MIB, Ok), (255 * MIB, Severity.WARNING)])
def test_temporary_folder_full(free: int, expected: object) -> None:
    assert severity("temporary-folder-full", StorageFact(free=(("/tmp", free),))) == expected


@given(st.text(max_size=200))
def test_mounts_of_any_text(text: str) -> None:
    fact = StorageFact(mounts=tuple(parse_mounts(text)))
    assert fact.mount_of("/a/b") in (None, *fact.mounts)


def test_mounts_with_spaces_in_their_path() -> None:
    (mount,) = parse_mounts("/dev/sda1 /mnt/my\\040disk ext4 rw,noexec 0 0\n")
    assert (mount.path, mount.kind, mount.options) == ("/mnt/my disk", "ext4", "rw,noexec")
