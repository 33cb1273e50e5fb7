"""Downloads from a server that misbehaves in every way that was met."""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envdoctor import web
from envdoctor.download import Download, Patience, Stopped
from envdoctor.errors import SourceError
from envdoctor.meter import Meter
from envdoctor.pylock import Wheel
from envdoctor.wheelhouse import Wheelhouse
from tests.index_server import MIB, Manner, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 3 * MIB + 17
FILE = "big-1.0-py3-none-any.whl"
CONTENT = Random(1).randbytes(SIZE)  # noqa: S311  no secret
SHA = hashlib.sha256(CONTENT).hexdigest()
WHEEL = Wheel(name="big", version="1.0", file=FILE, sha256=SHA, size=SIZE, source="")
UNSIZED = Wheel(name="big", version="1.0", file=FILE, sha256=SHA, size=None, source="")
QUICK = Patience(rounds=3, silence_seconds=1.0)


class Place:
    """A wheelhouse, and a file to serve."""

    def __init__(self, folder: Path) -> None:
        self.house = Wheelhouse(folder / "wheels")
        self.served = folder / "served" / FILE
        self.served.parent.mkdir(exist_ok=True)
        self.served.write_bytes(CONTENT)
        self.meter = Meter(SIZE, 1)
        self.stop = threading.Event()

    def download(self, wheel: Wheel = WHEEL, **variables: str) -> Download:
        way = web.make(variables, [])
        return Download(wheel, house=self.house, web=way, stop=self.stop, meter=self.meter)

    def keep_part(self, content: bytes, wheel: Wheel = WHEEL) -> None:
        part = self.house.part(wheel)
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)

    def is_complete(self, wheel: Wheel = WHEEL) -> bool:
        left = [path.name for path in self.house.part(wheel).parent.iterdir()]
        return self.house.path(wheel).read_bytes() == CONTENT and sorted(left) == [FILE, "source"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


HEALED = [
    pytest.param(Manner(), 1.0, id="well-behaved"),
    pytest.param(Manner(codes=[503]), 1.0, id="503-once"),
    pytest.param(Manner(codes=[429, 500]), 1.0, id="too-many-requests-then-500"),
    pytest.param(Manner(stop_at=2 * MIB, num_stops=1), 1.0, id="truncated-once"),
    pytest.param(Manner(stop_at=2 * MIB, num_stops=1, is_reset=True), 1.3, id="reset-once"),
    pytest.param(Manner(stop_at=MIB + 5), 1.0, id="truncated-each-time"),
    pytest.param(Manner(stop_at=MIB, num_stops=1, is_silent=True), 1.0, id="silent-once"),
    pytest.param(Manner(stop_at=2 * MIB, num_stops=1, ranges="ignore"), 1.7, id="range-ignored"),
    pytest.param(Manner(stop_at=2 * MIB, num_stops=1, ranges="shift"), 2.4, id="range-shifted"),
    pytest.param(Manner(length=1000), 1.0, id="length-too-large"),
    pytest.param(Manner(states_length=False), 1.0, id="no-length"),
    pytest.param(Manner(states_length=False, stop_at=MIB, num_stops=2), 1.0, id="no-length-cut"),
]  # fmt: skip


@pytest.mark.parametrize(("manner", "times"), HEALED)
@pytest.mark.parametrize("wheel", [WHEEL, UNSIZED], ids=["sized", "unsized"])
def test_file_comes_whole_from_a_server_that_recovers(
    place: Place, manner: Manner, times: float, wheel: Wheel
) -> None:
    manner = replace(manner, codes=list(manner.codes))
    with serving(place.served, manner=manner) as server:
        assert place.download(wheel).run([server.file_url(place.served)], QUICK)
        assert server.sent() <= times * SIZE
    assert place.is_complete(wheel)
    assert place.house.source(wheel) == server.host
    assert place.meter.done == SIZE


REFUSED = [
    pytest.param(Manner(codes=[404] * 9), "HTTP 404", 1, id="404"),
    pytest.param(Manner(codes=[403] * 9), "HTTP 403", 1, id="403"),
    pytest.param(Manner(codes=[503] * 9), "HTTP 503", 3, id="503"),
    pytest.param(Manner(stop_at=1000), "too early", 3, id="truncated-early"),
    pytest.param(Manner(stop_at=0, is_silent=True), "silent for 1 s", 3, id="silent"),
    pytest.param(Manner(bytes_per_second=4000, block=400), "within 1 s", 3, id="dribbling"),
    pytest.param(Manner(length=-1000), "wanted", 4, id="length-too-small"),
    pytest.param(Manner(is_wrong=True), "sha256", 1, id="wrong-bytes"),
    pytest.param(Manner(encoding="gzip"), "compresses", 1, id="compressed"),
]


@pytest.mark.parametrize(("manner", "words", "requests"), REFUSED)
def test_fault_of_a_server_is_told(place: Place, manner: Manner, words: str, requests: int) -> None:
    manner = replace(manner, codes=list(manner.codes))
    with serving(place.served, manner=manner) as server:
        url = server.file_url(place.served)
        download = place.download()
        assert not download.run([url], QUICK)
        assert words in download.faults[url].reason
        assert len(server.asked) == requests
    assert not place.house.has(WHEEL)


@pytest.mark.parametrize(
    "manner",
    [
        pytest.param(Manner(codes=[404]), id="404"),
        pytest.param(Manner(codes=[503] * 9), id="503"),
        pytest.param(Manner(is_wrong=True), id="wrong-bytes"),
        pytest.param(Manner(is_wrong=True, stop_at=2 * MIB + MIB // 2), id="wrong-and-cut"),
        pytest.param(Manner(stop_at=1000), id="truncated"),
        pytest.param(Manner(stop_at=0, is_silent=True), id="silent"),
        pytest.param(Manner(length=-5), id="length-too-small"),
    ],
)
def test_next_address_serves_where_the_first_does_not(place: Place, manner: Manner) -> None:
    manner = replace(manner, codes=list(manner.codes))
    with serving(place.served, manner=manner) as bad, serving(place.served) as good:
        urls = [bad.file_url(place.served), good.file_url(place.served)]
        assert place.download().run(urls, QUICK)
    assert place.house.path(WHEEL).read_bytes() == CONTENT
    assert good.host in place.house.source(WHEEL)
    assert place.meter.done == SIZE


def test_wrong_file_is_set_aside_until_the_right_one_comes(place: Place) -> None:
    with serving(place.served, manner=Manner(is_wrong=True)) as server:
        place.download().run([server.file_url(place.served)], QUICK)
        assert len(place.house.wrong(WHEEL).read_bytes()) == SIZE
        assert place.house.part(WHEEL).read_bytes() == b""
        server.manner = Manner()
        assert place.download().run([server.file_url(place.served)], QUICK)
    assert place.is_complete()


def test_refused_connection_is_told(place: Place) -> None:
    with serving(place.served) as server:
        url = server.file_url(place.served)
    download = place.download()
    assert not download.run([url], QUICK)
    assert "connection refused" in download.faults[url].reason


@pytest.mark.parametrize(
    "url", ["ftp://h/x", "file:///etc/passwd", "http://", "nonsense", "http://[::1", "http://h:x/"]
)
def test_address_that_is_none_of_http_is_a_fault(place: Place, url: str) -> None:
    download = place.download()
    assert not download.run([url], Patience(rounds=1, silence_seconds=1.0))
    assert download.faults[url].reason


@given(length=st.integers(0, SIZE), damage=st.booleans())
@settings(max_examples=12, deadline=None)
def test_what_is_there_is_not_fetched_again(
    tmp_path_factory: pytest.TempPathFactory, length: int, damage: bool
) -> None:
    place = Place(tmp_path_factory.mktemp("resumed"))
    is_damaged = damage and length > 0
    place.keep_part(bytes([CONTENT[0] ^ 1]) + CONTENT[1:length] if is_damaged else CONTENT[:length])
    with serving(place.served) as server:
        assert place.download().run([server.file_url(place.served)], QUICK)
        assert server.sent() == (2 * SIZE - length if is_damaged else SIZE - length)
    assert place.is_complete()


@pytest.mark.parametrize("length", [SIZE + 1, SIZE, 3])
@pytest.mark.parametrize("wheel", [WHEEL, UNSIZED], ids=["sized", "unsized"])
def test_beginning_of_another_file_does_no_harm(place: Place, wheel: Wheel, length: int) -> None:
    place.keep_part(b"x" * length, wheel)
    with serving(place.served) as server:
        assert place.download(wheel).run([server.file_url(place.served)], QUICK)
    assert place.is_complete(wheel)


def test_stop_ends_the_work_and_keeps_what_came(place: Place) -> None:
    with serving(place.served, manner=Manner(bytes_per_second=4 * MIB)) as server:
        count = place.meter.came

        def stop_after_a_mebibyte(num_bytes: int) -> None:
            count(num_bytes)
            if place.meter.done >= MIB:
                place.stop.set()

        place.meter.came = stop_after_a_mebibyte  # type: ignore[method-assign]  # to stop midway
        with pytest.raises(Stopped):
            place.download().run([server.file_url(place.served)], QUICK)
    kept = place.house.part(WHEEL).read_bytes()
    assert 0 < len(kept) < SIZE
    assert CONTENT.startswith(kept)


def test_two_that_want_the_same_file_fetch_it_once(place: Place) -> None:
    with serving(place.served, manner=Manner(bytes_per_second=8 * MIB)) as server:
        urls = [server.file_url(place.served)]
        threads = [
            threading.Thread(target=place.download().run, args=(urls, QUICK)) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.sent() == SIZE
    assert place.is_complete()


@pytest.fixture
def netrc(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "netrc"
    path.write_text("machine 127.0.0.1 login ada password p@ss\n")
    path.chmod(0o600)
    yield str(path)
    os.truncate(path, 0)


def test_credentials_come_from_address_index_and_netrc(place: Place, netrc: str) -> None:
    expected = "Basic YWRhOnBAc3M="
    with serving(place.served) as server:
        url = server.file_url(place.served)
        own = url.replace("://", "://ada:p%40ss@")
        ways = [
            (own, web.make({}, [])),
            (url, web.make({}, [own])),
            (url, web.make({"NETRC": netrc}, [])),
        ]
        for address, way in ways:
            way.open(address, headers={}, timeout=5).close()
        assert [one.authorization for one in server.asked] == [expected] * 3


def test_credentials_do_not_follow_a_redirect_to_another_host(place: Place) -> None:
    with serving(place.served) as other:
        manner = Manner(redirect=f"{other.url()}")
        with serving(place.served, manner=manner) as first:
            url = first.file_url(place.served).replace("://", "://ada:secret@")
            assert place.download().run([url], QUICK)
            assert first.asked[0].authorization
            assert not other.asked[0].authorization
    assert place.is_complete()


def test_range_survives_a_redirect(place: Place) -> None:
    place.keep_part(CONTENT[:MIB])
    with serving(place.served) as other:
        with serving(place.served, manner=Manner(redirect=other.url())) as first:
            assert place.download().run([first.file_url(place.served)], QUICK)
        assert other.sent() == SIZE - MIB
    assert place.is_complete()


def test_endless_redirects_are_a_fault(place: Place) -> None:
    with serving(place.served) as server:
        server.manner = Manner(redirect=server.url())
        url = server.file_url(place.served)
        download = place.download()
        assert not download.run([url], Patience(rounds=1, silence_seconds=1.0))
        assert "HTTP 302" in download.faults[url].reason


def test_proxy_of_the_variables_is_used(place: Place) -> None:
    with serving(place.served) as server:
        download = place.download(http_proxy="http://127.0.0.1:9")
        url = server.file_url(place.served)
        assert not download.run([url], Patience(rounds=1, silence_seconds=1.0))
        assert "connection refused" in download.faults[url].reason
        assert not server.asked


def test_file_without_certificates_is_named(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("nothing")
    with pytest.raises(SourceError, match=r"ca\.pem: found no certificates"):
        web.make({"SSL_CERT_FILE": str(bundle)}, [])


def test_address_that_cannot_be_split_has_no_credentials() -> None:
    assert web.make({}, ["http://[::1", "http://u:p@h/x"]).credentials.keys() == {"http://h"}
