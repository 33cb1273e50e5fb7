"""Profiles: what loads, and what is said about what does not."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor import profile
from envdoctor.errors import ExitCode, UsageError, UserFileError
from train.settings import problems_of

if TYPE_CHECKING:
    from pathlib import Path

MINIMAL = """
schema = 1
name = "mine"
[torch]
version = "2.10.0"
variant = "cu128"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(UserFileError) as caught:
        profile.load_profile(str(write(folder, text)))
    assert caught.value.exit_code == ExitCode.USAGE
    return caught.value.message


@pytest.mark.parametrize("name", profile.known_names())
def test_bundled_profile_loads_under_its_own_name(name: str) -> None:
    loaded = profile.load_profile(name)
    assert loaded.name == name
    assert loaded.description


@pytest.mark.parametrize("name", profile.known_names())
def test_bundled_profile_pins_what_it_requires(name: str) -> None:
    loaded = profile.load_profile(name)
    assert all("==" in requirement for requirement in loaded.packages.require)
    assert loaded.sources.exclude_newer


def test_minimal_profile_has_defaults(tmp_path: Path) -> None:
    loaded = profile.load_profile(str(write(tmp_path, MINIMAL)))
    assert loaded.packages.forbid == ()
    assert loaded.build.link_mode == "copy"
    assert "LD_LIBRARY_PATH" in loaded.env.forbid


def test_wheel_folders_are_relative_to_the_file(tmp_path: Path) -> None:
    text = MINIMAL + '[sources]\nwheelhouse = ["wheels", "/abs"]\n'
    loaded = profile.load_profile(str(write(tmp_path, text)))
    assert loaded.sources.wheelhouse == (str(tmp_path / "wheels"), "/abs")


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        profile.load_profile("cu128s")
    assert caught.value.reference == "profile-not-found"
    assert "cu128" in caught.value.hint
    assert "cpu" in caught.value.hint
    assert "did you mean cu128?" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            ("version =", "versoin ="),
            ["torch.versoin: unknown key; did you mean torch.version?", "torch.version: missing"],
            id="mistyped-key",
        ),
        pytest.param(
            ('"2.10.0"', "2.10"),
            ["torch.version: found 2.1, wanted a full version such as '2.10.0'"],
            id="number-for-version",
        ),
        pytest.param(
            ('"cu128"', '"cu12.8"'),
            ["torch.variant: found 'cu12.8', wanted 'cpu', or"],
            id="variant",
        ),
        pytest.param(
            ("schema = 1", "schema = 2"), ["schema: found 2, wanted one of 1"], id="schema"
        ),
        pytest.param(('"mine"', '"../x"'), ["name: found '../x', wanted small letters"], id="name"),
        pytest.param(
            ("[torch]", "[tork]"), ["torch: missing, wanted a table", "tork: unknown"], id="section"
        ),
        pytest.param(("[torch]", "[torch"), ["not valid TOML"], id="not-toml"),
    ],
)
def test_problem_names_file_key_and_wanted(
    tmp_path: Path, change: tuple[str, str], expected: list[str]
) -> None:
    message = refusal(tmp_path, MINIMAL.replace(*change))
    assert all(text in message for text in expected)
    assert all(line.startswith(f"{tmp_path}/mine.toml: ") for line in message.splitlines())


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        pytest.param(
            '[packages]\nforbid = "vllm"', "packages.forbid: found 'vllm', wanted a list", id="list"
        ),
        pytest.param(
            "[build]\nkeep = 1", "build.keep: found 1, wanted a whole number at least 2", id="limit"
        ),
        pytest.param(
            "[check]\ntimeout_seconds = true", "check.timeout_seconds: found True", id="bool"
        ),
        pytest.param(
            '[build]\nlink_mode = "symlink"',
            "build.link_mode: found 'symlink', wanted one of clone, copy, hardlink",
            id="choice",
        ),
        pytest.param(
            '[python]\nrequires = "3.11"', "python.requires: found '3.11'", id="specifier"
        ),
        pytest.param(
            '[sources]\nexclude_newer = "2026-11-01"',
            "sources.exclude_newer: found",
            id="time-without-zone",
        ),
        pytest.param(
            '[packages]\nrequire = ["a b"]', "packages.require[0]: found 'a b'", id="requirement"
        ),
        pytest.param(
            '[packages]\nrequire = ["torch"]', "wanted torch in torch.version", id="torch-required"
        ),
        pytest.param(
            '[packages]\nrequire = ["x @ https://h/x.whl"]',
            "found the URL of x",
            id="requirement-url",
        ),
        pytest.param(
            '[[index]]\nname = "a"\npackages = ["torch"]', "index[0].url: missing", id="no-url"
        ),
        pytest.param(
            '[[index]]\nname = "a"\nurl = "http://u:pw@h :1/"\npackages = ["torch"]',
            "index[0].url: found 'http://****@h :1/', wanted a URL",
            id="blank-in-a-url",
        ),
        pytest.param(
            '[[index]]\nname = "a"\nurl = "http://h:99999/"\npackages = ["torch"]',
            "index[0].url: found 'http://h:99999/', wanted a URL",
            id="port-of-a-url",
        ),
        pytest.param(
            '[env]\nset = { "A=B" = "c" }', "env.set: found the name 'A=B'", id="variable-name"
        ),
        pytest.param(
            '[env]\nset = { "" = "c" }', "env.set: found the name ''", id="empty-variable-name"
        ),
        pytest.param(
            '[env]\nset = { A = "b\\u0000" }', r"env.set.A: found 'b\x00'", id="variable-value"
        ),
        pytest.param(
            '[[index]]\nname = "a"\nurll = "x"', "did you mean index[0].url?", id="key-in-a-list"
        ),
        pytest.param(
            '[[index]]\nname = "a"\ndefault = true\n[[index]]\nname = "b"\ndefault = true',
            "index[1].default: found a second default",
            id="two-defaults",
        ),
    ],
)
def test_sections_are_held_to_their_rules(tmp_path: Path, section: str, expected: str) -> None:
    assert expected in refusal(tmp_path, MINIMAL + section)


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    message = refusal(
        tmp_path, MINIMAL.replace('"cu128"', "1") + "[gpu]\ndriver = 1\n[build]\nkeep = 0\n"
    )
    assert len(message.splitlines()) == 3


@pytest.mark.parametrize("kind", ["missing", "folder", "not-text"])
def test_unreadable_file_is_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mine.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "not-text":
        path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserFileError) as caught:
        profile.load_profile(str(path))
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message


def test_digest_ignores_layout_of_the_file(tmp_path: Path) -> None:
    one = profile.load_profile(str(write(tmp_path, MINIMAL)))
    two = profile.load_profile(str(write(tmp_path, "# a comment\n" + MINIMAL)))
    other = profile.load_profile(str(write(tmp_path, MINIMAL.replace("2.10.0", "2.9.1"))))
    assert profile.digest(one) == profile.digest(two) != profile.digest(other)


TOML_VALUES = st.recursive(
    st.none().map(lambda _: 0)
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    st.sampled_from([field.name for field in msgspec.structs.fields(profile.Profile)]) | st.text()
)


@given(st.dictionaries(KEYS, TOML_VALUES, max_size=6))
def test_any_table_gets_lines_and_never_a_crash(raw: dict[str, object]) -> None:
    problems = problems_of(raw, profile.Profile)
    assert all(": " in problem for problem in problems)


@given(st.dictionaries(KEYS, TOML_VALUES, max_size=6))
def test_table_without_problems_is_a_profile(raw: dict[str, object]) -> None:
    valid = tomllib.loads(MINIMAL)
    merged = {**valid, **raw}
    try:
        msgspec.convert(merged, profile.Profile)
    except msgspec.ValidationError:
        assert problems_of(merged, profile.Profile)
    else:
        assert not problems_of(merged, profile.Profile)


@given(st.text())
def test_any_text_loads_or_is_refused_as_a_user_file(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("profile") / "mine.toml"
    path.write_text(text, "utf-8", errors="surrogateescape", newline="")
    with pytest.raises(UserFileError):
        profile.load_profile(str(path))
