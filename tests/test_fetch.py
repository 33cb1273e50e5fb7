"""Builds whose wheels come over HTTP, from indexes that misbehave, are interrupted, or are gone."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from envdoctor.errors import (
    BusyError,
    EnvdoctorError,
    ExitCode,
    IntegrityError,
    SourceError,
    SpaceError,
    UserFileError,
)
from envdoctor.wheelhouse import Wheelhouse, sha256_of
from tests.index_server import MIB, IndexServer, Manner, serving_all
from tests.tiny_wheels import make_torch, make_wheel
from tests.workbench import Bench

BIG = 6 * MIB


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def index(server: IndexServer, name: str = "main", path: str = "simple", user: str = "") -> str:
    """Return the profile's section of a default index whose torch is of the profile's variant."""
    return f"""
[[index]]
name = "{name}"
default = true
url = "{server.url(path, user=user)}"
same_variant = {{ torch = ["9.9.0"] }}
"""


def big_wheel(folder: Path) -> Path:
    """Write a wheel that does not compress."""
    text = Random(7).randbytes(BIG // 2).hex()  # noqa: S311  no secret
    files = {"alpha.py": f"text = '{text}'\n"}
    return make_wheel(folder, "alpha", "1.0", files=files, requires=["beta"])


def packages(bench: Bench) -> Path:
    """Write plain wheels, as the default index has them, and return their folder."""
    folder = bench.folder / "plain"
    make_torch(folder, "9.9.0")
    make_wheel(folder, "alpha", "1.0", requires=["beta>=1"])
    make_wheel(folder, "beta", "1.0")
    return folder


def test_wheels_are_fetched_once_and_the_receipt_says_who_served(bench: Bench) -> None:
    with serving_all({"simple": packages(bench)}) as server:
        path = bench.write(wheels=False, more=index(server))
        built = bench.build(path)
        assert {wheel.source for wheel in built.receipt.packages} == {server.host}
        assert f"came from {server.host} (3)" in bench.notes
        sent = server.sent()
        again = bench.build(path, force=True)
        assert server.sent() == sent
    assert {wheel.source for wheel in again.receipt.packages} == {server.host}
    assert bench.torch_of_current() == "9.9.0+cpu"
    assert not bench.left_over()


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        pytest.param(Manner(is_wrong=True), "gives a file of sha256", id="wrong-bytes"),
        pytest.param(Manner(codes=[503] * 99), "HTTP 503", id="503"),
        pytest.param(Manner(stop_at=10), "too early", id="truncated"),
        pytest.param(Manner(codes=[404] * 99), "HTTP 404", id="404"),
    ],
)
def test_other_index_serves_what_the_first_does_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, manner: Manner, words: str
) -> None:
    folder = packages(bench)
    with (
        serving_all({"simple": folder}, manner=manner) as bad,
        serving_all({"simple": folder}) as good,
    ):
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", bad.url())  # uv looks there first
        text = Path(bench.write(wheels=False, more=index(good))).read_text()
        path = bench.folder / "tiny.toml"
        path.write_text(text.replace('pip_config = "ignore"', ""))
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
        built = bench.build(str(path))
        assert words in bench.notes
        assert good.sent() > 0
    assert all(good.host in wheel.source for wheel in built.receipt.packages)
    assert bench.torch_of_current() == "9.9.0+cpu"


FAILURES = [
    pytest.param(Manner(is_wrong=True), IntegrityError, "wanted", id="wrong-bytes"),
    pytest.param(Manner(codes=[503] * 99), SourceError, "HTTP 503", id="503"),
    pytest.param(Manner(codes=[401] * 99), SourceError, "HTTP 401", id="401"),
]


@pytest.mark.parametrize(("manner", "kind", "words"), FAILURES)
def test_file_that_nobody_gives_ends_the_build_and_says_why(
    bench: Bench, manner: Manner, kind: type[EnvdoctorError], words: str
) -> None:
    with serving_all({"simple": packages(bench)}, manner=manner) as server:
        path = bench.write(wheels=False, more=index(server, user="ada:hunter2"))
        with pytest.raises(kind) as caught:
            bench.build(path)
        assert ".whl" in caught.value.message
        assert server.host in caught.value.message
        assert words in caught.value.message
        assert caught.value.hint
        assert "the same command goes on there" in bench.notes
        server.manner = Manner()
        bench.build(path)
        assert any(one.authorization for one in server.asked)
    assert bench.torch_of_current() == "9.9.0+cpu"
    texts = [file.read_text() for file in bench.home.glob("logs/*")]
    texts += [event.text for event in bench.events] + [caught.value.message]
    assert not [text for text in texts if "hunter2" in text]


def test_password_comes_from_a_variable_and_is_told_nowhere(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_all({"simple": packages(bench)}) as server:
        path = bench.write(wheels=False, more=index(server, user="ada:${INDEX_TOKEN}"))
        with pytest.raises(UserFileError, match="variable INDEX_TOKEN, which is not set"):
            bench.build(path)
        monkeypatch.setenv("INDEX_TOKEN", "hunter/2@")
        bench.build(path)
        assert {one.authorization for one in server.asked} == {"Basic YWRhOmh1bnRlci8yQA=="}
    texts = [file.read_text() for file in (*bench.home.glob("logs/*"), *bench.envs.glob("r*/*"))]
    assert not [text for text in texts if "hunter" in text]


@pytest.mark.parametrize(
    ("manner", "kind"),
    [
        pytest.param(Manner(ranges="ignore"), None, id="no-ranges"),
        pytest.param(Manner(stop_at=300), SourceError, id="truncated"),
        pytest.param(Manner(is_wrong=True), IntegrityError, id="wrong-bytes"),
    ],
)
def test_index_without_metadata_is_judged_alike(
    bench: Bench, manner: Manner, kind: type[EnvdoctorError] | None
) -> None:
    with serving_all({"simple": packages(bench)}, manner) as server:
        server.has_metadata = False
        path = bench.write(wheels=False, more=index(server))
        if kind is None:
            bench.build(path)
        else:
            with pytest.raises(kind):
                bench.build(path)


def test_network_that_goes_away_ends_the_build_soon(bench: Bench) -> None:
    folder = packages(bench)
    names = [f"gamma{number}" for number in range(12)]
    for name in names:
        make_wheel(folder, name, "1.0")
    make_wheel(folder, "alpha", "1.0", requires=names)
    with serving_all({"simple": folder}, Manner(codes=[503] * 999)) as server:
        path = bench.write(wheels=False, more=index(server))
        start = time.monotonic()
        with pytest.raises(SourceError, match="HTTP 503"):
            bench.build(path)
    assert time.monotonic() - start < 60
    assert bench.notes.count("asking others") <= len(names) + 2


def test_killed_download_goes_on_where_it_ended(bench: Bench) -> None:
    folder = packages(bench)
    big = big_wheel(folder)
    size = big.stat().st_size
    manner = Manner(bytes_per_second=8 * MIB)
    with serving_all({"simple": folder}, manner=manner) as server:
        path = bench.write(wheels=False, more=index(server))
        for kept in (0.3, 0.6):
            process = bench.start(path)
            while server.sent("alpha") < kept * size:
                assert process.poll() is None
                time.sleep(0.01)
            process.kill()
            process.communicate()
        bench.build(path)
        assert size <= server.sent("alpha") <= size + 2 * MIB
        assert [bool(one.range) for one in server.asked if one.file == big.name] == [
            False,
            True,
            True,
        ]
    assert not list(bench.home.glob("wheels/*/*.part"))
    assert not bench.left_over()


def test_interrupted_download_says_what_is_kept(bench: Bench) -> None:
    folder = packages(bench)
    big = big_wheel(folder)
    with serving_all({"simple": folder}, manner=Manner(bytes_per_second=2 * MIB)) as server:
        process = bench.start(bench.write(wheels=False, more=index(server)))
        while server.sent(big.name) < MIB:
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        start = time.monotonic()
        output, _ = process.communicate(timeout=60)
    assert time.monotonic() - start < 30
    assert process.returncode == ExitCode.INTERRUPTED
    assert "GB are kept: the same command goes on there" in output
    assert "stopped in stage fetch; run the same command to go on" in output
    assert "there is no current yet" in output


def test_pytorch_like_index_is_preferred_and_its_fallback_is_of_the_same_variant(
    bench: Bench,
) -> None:
    near, main = bench.folder / "near", bench.folder / "main"
    make_torch(near, "9.9.0+cu128", cuda="12.8")
    make_torch(near, "9.9.9+cu128", cuda="12.8")
    make_wheel(near, "alpha", "0.1")
    make_torch(main, "9.9.0", cuda="12.8")
    make_torch(main, "9.9.5", cuda="13.0")
    make_wheel(main, "alpha", "1.0")
    with serving_all({"whl/cu128": near, "simple": main}) as server:
        preferred = f"""
[[index]]
name = "pytorch"
url = "{server.url("whl/cu128")}"
packages = ["torch"]
{index(server)}
"""
        path = bench.write(variant="cu128", wheels=False, require="alpha", more=preferred)
        built = bench.build(path)
        found = {wheel.name: wheel.version for wheel in built.receipt.packages}
        assert found == {"torch": "9.9.0+cu128", "alpha": "1.0"}
        assert built.receipt.source.startswith("pytorch index")
        del server.indexes["whl/cu128"]
        built = bench.build(path)
        found = {wheel.name: wheel.version for wheel in built.receipt.packages}
        assert found == {"torch": "9.9.0", "alpha": "1.0"}


def test_plain_torch_of_another_variant_is_refused_before_it_is_installed(bench: Bench) -> None:
    folder = packages(bench)
    make_torch(folder, "9.9.0", cuda="13.0")
    with serving_all({"simple": folder}) as server:
        path = bench.write(variant="cu128", wheels=False, more=index(server))
        with pytest.raises(IntegrityError, match=r"wanted cu128; torch.version.cuda is 13.0"):
            bench.build(path)
    assert "install" not in {event.stage for event in bench.events}
    assert not bench.envs.joinpath("current").exists()


def test_wheels_that_own_one_file_are_refused_before_they_are_installed(bench: Bench) -> None:
    make_wheel(bench.wheels, "alpha", "1.0", files={"lib/a.so": "one", "lib/__init__.py": ""})
    make_wheel(bench.wheels, "beta", "1.0", files={"lib/a.so": "two", "lib/__init__.py": ""})
    text = Path(bench.write()).read_text()
    path = bench.folder / "tiny.toml"
    path.write_text(text.replace('["alpha==1.0"]', '["alpha==1.0", "beta==1.0"]'))
    with pytest.raises(IntegrityError) as caught:
        bench.build(str(path))
    assert caught.value.message.startswith("alpha and beta both own lib/a.so: one would overwrite")
    assert "install" not in {event.stage for event in bench.events}


def test_shared_file_of_equal_content_is_fine(bench: Bench) -> None:
    make_wheel(bench.wheels, "alpha", "1.0", files={"lib/__init__.py": "", "lib/a.py": ""})
    make_wheel(bench.wheels, "beta", "1.0", files={"lib/__init__.py": "", "lib/b.py": ""})
    text = Path(bench.write()).read_text()
    path = bench.folder / "tiny.toml"
    path.write_text(text.replace('["alpha==1.0"]', '["alpha==1.0", "beta==1.0"]'))
    assert bench.build(str(path)).is_new


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_wheel_that_was_damaged_in_the_wheelhouse_is_fetched_anew(
    bench: Bench, damage: str
) -> None:
    with serving_all({"simple": packages(bench)}) as server:
        path = bench.write(wheels=False, more=index(server))
        bench.build(path)
        (wheel,) = bench.home.glob("wheels/*/alpha*.whl")
        content = wheel.read_bytes()
        wheel.write_bytes(content[:-9] if damage == "cut" else b"x" * len(content))
        bench.build(path, force=True)
        assert wheel.read_bytes() == content
    assert bench.torch_of_current() == "9.9.0+cpu"


def test_offline_build_takes_what_was_fetched_and_asks_nobody(bench: Bench) -> None:
    with serving_all({"simple": packages(bench)}) as server:
        path = bench.write(wheels=False, more=index(server))
        first = bench.build(path)
        number = len(server.asked)
        second = bench.build(path, offline=True, force=True)
        assert len(server.asked) == number
    assert second.receipt.packages == first.receipt.packages
    third = bench.build(path, offline=True, force=True)
    assert third.receipt.tree == first.receipt.tree


def test_offline_build_without_the_wheels_says_how_to_bring_them(bench: Bench) -> None:
    with serving_all({"simple": packages(bench)}) as server:
        path = bench.write(wheels=False, more=index(server))
        with pytest.raises(SourceError, match="offline") as caught:
            bench.build(path, offline=True)
        assert not server.asked
    assert caught.value.exit_code == ExitCode.SOURCE
    assert "wheelhouse import" in caught.value.hint


def test_offline_build_takes_wheel_folders(bench: Bench) -> None:
    assert bench.build(bench.write(), offline=True).is_new


def test_file_that_may_not_grow_is_a_space_error_and_the_next_build_succeeds(bench: Bench) -> None:
    folder = packages(bench)
    big_wheel(folder)
    limit = 2 * MIB
    with serving_all({"simple": folder}) as server:
        path = bench.write(wheels=False, more=index(server))
        process = subprocess.run(
            [sys.executable, "-m", "envdoctor", "build", "--profile", path],
            env={**os.environ, "ENVDOCTOR_HOME": str(bench.home)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == ExitCode.SPACE, process.stderr
        assert "alpha-1.0" in process.stderr
        assert "Traceback" not in process.stderr
        assert server.sent("alpha") >= limit
        bench.build(path)
    assert bench.torch_of_current() == "9.9.0+cpu"


def test_place_of_a_wheel_that_is_taken_is_a_space_error(bench: Bench) -> None:
    folder = packages(bench)
    (alpha,) = folder.glob("alpha*")
    place = bench.home / "wheels" / sha256_of(alpha)
    place.parent.mkdir(parents=True)
    place.write_text("a file")
    with serving_all({"simple": folder}) as server:
        with pytest.raises(SpaceError, match=str(place)):
            bench.build(bench.write(wheels=False, more=index(server)))
        place.unlink()
        bench.build(bench.write(wheels=False, more=index(server)))


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    place = tmp_path / "small"
    place.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", f"size={4 * MIB}", "none", str(place)]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("may not mount")
    return place


def test_full_disk_is_a_space_error_and_the_next_build_succeeds(
    bench: Bench, small_disk: Path
) -> None:
    folder = packages(bench)
    big_wheel(folder)
    bench.home.mkdir()
    (bench.home / "wheels").symlink_to(small_disk)
    try:
        with serving_all({"simple": folder}) as server:
            path = bench.write(wheels=False, more=index(server))
            with pytest.raises(SpaceError, match="alpha-"):
                bench.build(path)
            subprocess.run(["mount", "-o", f"remount,size={64 * MIB}", small_disk], check=True)  # noqa: S607
            bench.build(path)
            size = (folder / "alpha-1.0-py3-none-any.whl").stat().st_size
            assert server.sent("alpha") <= size + MIB
    finally:
        subprocess.run(["umount", small_disk], check=True)  # noqa: S607
    assert bench.torch_of_current() == "9.9.0+cpu"


def test_home_may_have_any_name(tmp_path: Path) -> None:
    odd = Bench(tmp_path / "my d\u00e4ta #1 100% 'x' & <y>?")
    with serving_all({"simple": packages(odd)}) as server:
        path = odd.write(wheels=False, more=index(server))
        first = odd.build(path)
    second = odd.build(path, offline=True, force=True)
    assert second.receipt.tree == first.receipt.tree
    assert odd.torch_of_current() == "9.9.0+cpu"


def test_wheels_are_not_deleted_while_somebody_uses_them(bench: Bench) -> None:
    house = Wheelhouse(bench.home / "wheels")
    with house.used(), house.used(), pytest.raises(BusyError), house.used(alone=True):
        raise AssertionError
    with house.used(alone=True), pytest.raises(BusyError), house.used():
        raise AssertionError
