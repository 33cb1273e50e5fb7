"""pip's configuration, and which sources answer."""

from __future__ import annotations

import http.server
import os
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor import pip_config, reach, sources
from envdoctor.errors import UsageError
from envdoctor.pip_config import PipConfig
from envdoctor.profile import load_profile
from envdoctor.urls import local_path, mask, origin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param("", PipConfig(), id="empty"),
        pytest.param("global.index-url='https://m'", PipConfig(index_url="https://m"), id="index"),
        pytest.param(
            "global.index-url='https://g'\ninstall.index-url='https://i'",
            PipConfig(index_url="https://i"),
            id="command-section-wins",
        ),
        pytest.param(
            ":env:.index-url='https://e'\ninstall.index-url='https://i'",
            PipConfig(index_url="https://e"),
            id="variable-wins",
        ),
        pytest.param("download.index-url='https://d'", PipConfig(), id="other-command"),
        pytest.param(
            r"global.extra-index-url='\nhttps://a\nhttps://b'",
            PipConfig(extra_index_urls=("https://a", "https://b")),
            id="list-over-lines",
        ),
        pytest.param(
            "global.find-links='/w  https://h/links /w'",
            PipConfig(find_links=("/w", "https://h/links")),
            id="list-in-a-line",
        ),
        pytest.param("global.no-index='true'", PipConfig(no_index=True), id="flag"),
        pytest.param("global.no-index='0'", PipConfig(), id="flag-off"),
        pytest.param(":env:.default-timeout='180'", PipConfig(timeout="180"), id="time-out"),
        pytest.param(
            "global.trusted-host='a b'\nglobal.cert='/c.pem'\nglobal.proxy='http://p:1'",
            PipConfig(trusted_hosts=("a", "b"), cert="/c.pem", proxy="http://p:1"),
            id="connection",
        ),
        pytest.param("WARNING: old\nglobal.cert=/c.pem\nnonsense", PipConfig(), id="other-lines"),
    ],
)  # fmt: skip
def test_pip_config_list_is_understood(lines: str, expected: PipConfig) -> None:
    assert pip_config.parse(lines) == expected


@given(st.text())
def test_any_text_is_some_configuration(text: str) -> None:
    assert isinstance(pip_config.parse(text), PipConfig)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_value_comes_back_as_pip_shows_it(value: str) -> None:
    found = pip_config.parse(f"global.find-links={value!r}").find_links
    assert found == tuple(dict.fromkeys(value.split()))


def test_pip_of_this_python_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://mirror.invalid/simple\n")
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PIP_CONFIG_FILE": str(file),
        "PIP_FIND_LINKS": "/some/wheels",
    }
    found = pip_config.read(variables)
    assert found is not None
    assert found.index_url == "https://mirror.invalid/simple"
    assert found.find_links == ("/some/wheels",)


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [200, 401, 403, 404, 405])
def test_index_that_answers_is_reachable(server: str, status: int) -> None:
    assert not reach.unreachable([f"{server}/{status}"], pip=PipConfig())


def test_reason_is_given_for_each_that_does_not_answer(server: str, tmp_path: Path) -> None:
    wanted = {
        f"{server}/503": "answered with an error (HTTP 503)",
        "http://127.0.0.1:9/simple": "127.0.0.1:9 did not answer (connection refused)",
        "https://no-such-host.invalid/simple": "no-such-host.invalid did not answer",
        "http://u:secret@127.0.0.1:9/": "127.0.0.1:9 did not answer",
        str(tmp_path / "nowhere"): "does not exist",
        (tmp_path / "nowhere").as_uri(): "does not exist",
        "http://[": "did not answer",
        "http://a b/": "did not answer (URL can't contain control characters",
    }
    found = reach.unreachable([*wanted, str(tmp_path), tmp_path.as_uri()], pip=PipConfig())
    assert list(found) == list(wanted)
    assert all(text in found[location] for location, text in wanted.items())
    assert not any("secret" in text for text in found.values())


def test_proxy_of_pip_is_used() -> None:
    url = "http://no-such-host.invalid/simple"
    dead = reach.unreachable([url], pip=PipConfig(proxy="http://127.0.0.1:9"))
    assert "connection refused" in dead[url]


def test_dead_sources_of_pip_are_left_out(tmp_path: Path) -> None:
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": f"{tmp_path} {tmp_path}/nowhere",
        "PIP_EXTRA_INDEX_URL": "http://127.0.0.1:9/simple",
    }
    found = sources.gather(load_profile("cpu"), variables=variables)
    assert found.pip.find_links == (str(tmp_path),)
    assert found.pip.extra_index_urls == ()
    assert len(found.notes) == 2
    assert all(note.startswith("left out pip's") for note in found.notes)


def test_pip_is_not_asked_when_the_profile_ignores_it(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'schema = 1\nname = "p"\n[torch]\nversion = "1.0"\nvariant = "cpu"\n'
        f'[sources]\npip_config = "ignore"\nwheelhouse = ["{tmp_path}", "gone", "p.toml"]\n'
    )
    found = sources.gather(load_profile(str(path)), variables={"PIP_FIND_LINKS": "/w"})
    assert [note.partition(": ")[2] for note in found.notes] == [
        f"{tmp_path}/gone does not exist",
        f"{path} is no folder",
    ]
    assert found.pip == PipConfig()
    assert found.wheels == (tmp_path,)


def test_wheel_folder_of_the_command_line_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        sources.gather(load_profile("cpu"), wheels=[tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:pass@host/simple", "https://****@host/simple"),
        ("see http://token@h:1/x and http://a:b@i", "see http://****@h:1/x and http://****@i"),
        ("https://host/a@b", "https://host/a@b"),
        ('"https://h", "me@example"', '"https://h", "me@example"'),
        ("https://u:p%40x@ss@host/", "https://****@host/"),
        ("https:/user:pass@host/simple", "https:/****@host/simple"),
        ("libs:/opt/a@b", "libs:/opt/a@b"),
        ("https://h/x?v=1&access_token=abc&w=2, y", "https://h/x?v=1&access_token=****&w=2, y"),
        ("https://h/x?page=1", "https://h/x?page=1"),
    ],
)
def test_credentials_are_masked(text: str, expected: str) -> None:
    assert mask(text) == expected


@given(st.text(), st.text(st.characters(categories=["L", "N"]), min_size=1))
def test_masked_text_has_no_credentials_left(before: str, secret: str) -> None:
    marked = f"{before} https://user:{secret}7hunter@host/x"
    assert f":{secret}7hunter@" not in mask(marked)


@pytest.mark.parametrize(
    ("location", "path", "source"),
    [
        ("file:///w/a%2Bb.whl", "/w/a+b.whl", "/w"),
        ("/w/a.whl", "/w/a.whl", "/w"),
        ("https://u:p@h.example/w/a.whl", None, "h.example"),
    ],
)
def test_location_of_a_file(location: str, path: str | None, source: str) -> None:
    found = local_path(location)
    assert (str(found) if found else None, origin(location)) == (path, source)
