"""Which variables steer envdoctor, and which win."""

from __future__ import annotations

from pathlib import Path

import pytest

from envdoctor import settings


@pytest.mark.parametrize(
    ("variables", "home", "source"),
    [
        pytest.param({"HOME": "/h"}, "/h/.local/share/envdoctor", "default", id="default"),
        pytest.param(
            {"HOME": "/h", "XDG_DATA_HOME": "/x"}, "/x/envdoctor", "XDG_DATA_HOME", id="xdg"
        ),
        pytest.param(
            {"HOME": "/h", "XDG_DATA_HOME": "x"},
            "/h/.local/share/envdoctor",
            "default",
            id="relative-xdg-is-ignored",
        ),
        pytest.param(
            {"HOME": "/h", "XDG_DATA_HOME": "/x", "ENVDOCTOR_HOME": "/e"},
            "/e",
            "ENVDOCTOR_HOME",
            id="own-variable-wins",
        ),
        pytest.param(
            {"HOME": "/h", "ENVDOCTOR_HOME": ""},
            "/h/.local/share/envdoctor",
            "default",
            id="empty-is-unset",
        ),
    ],
)
def test_home_comes_from_the_first_variable_that_is_set(
    variables: dict[str, str], home: str, source: str
) -> None:
    found = settings.load(variables)
    assert (found.home, found.home_source) == (Path(home), source)


def test_relative_home_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.load({"ENVDOCTOR_HOME": "data"}).home == tmp_path / "data"


def test_uv_is_none_unless_named() -> None:
    assert settings.load({"HOME": "/h"}).uv is None
    assert settings.load({"HOME": "/h", "ENVDOCTOR_UV": "/b/uv"}).uv == Path("/b/uv")


def test_variables_are_not_shown() -> None:
    assert "secret" not in repr(settings.load({"HOME": "/h", "TOKEN": "secret"}))
