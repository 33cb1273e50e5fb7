"""Locks: what is read out of uv's, and what is written for it."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.tags import Tag, parse_tag

from envdoctor import pylock
from envdoctor.errors import IntegrityError
from envdoctor.toml_text import array, quoted

SHA = "a" * 64
ORDER = (
    "cp311-cp311-linux_x86_64",
    "cp311-abi3-linux_x86_64",
    "cp39-abi3-linux_x86_64",
    "py3-none-any",
)
RANKS: dict[Tag, int] = {tag: n for n, text in enumerate(ORDER) for tag in parse_tag(text)}


def lock(*files: str, name: str = "torch", version: str = "2.10.0", sha256: str = SHA) -> str:
    wheels = ", ".join(
        f'{{ url = "https://h.example/x/{file}", size = 7, hashes = {{ sha256 = "{sha256}" }} }}'
        for file in files
    )
    return f'[[packages]]\nname = "{name}"\nversion = "{version}"\nwheels = [{wheels}]\n'


def taken(*files: str) -> str:
    return pylock.read(lock(*files), RANKS).wheels[0].file


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            ["torch-2.10.0-py3-none-any.whl", "torch-2.10.0-cp311-cp311-linux_x86_64.whl"],
            1,
            id="own-abi",
        ),
        pytest.param(
            ["torch-2.10.0-cp39-abi3-linux_x86_64.whl", "torch-2.10.0-cp311-abi3-linux_x86_64.whl"],
            1,
            id="newer-stable-abi",
        ),
        pytest.param(
            ["torch-2.10.0-py3-none-any.whl", "torch-2.10.0-3-py3-none-any.whl"],
            1,
            id="build-number",
        ),
        pytest.param(
            [
                "torch-2.10.0-3-cp311-cp311-linux_x86_64.whl",
                "torch-2.10.0-12-cp311-cp311-linux_x86_64.whl",
            ],
            1,
            id="build-number-as-a-number",
        ),
        pytest.param(
            ["torch-2.10.0-9-py3-none-any.whl", "torch-2.10.0-cp311-cp311-linux_x86_64.whl"],
            1,
            id="tag-before-build-number",
        ),
        pytest.param(
            ["torch-2.10.0-cp312-cp312-linux_x86_64.whl", "torch-2.10.0-py2.py3-none-any.whl"],
            1,
            id="several-tags-in-one",
        ),
        pytest.param(["not a wheel.whl", "torch-2.10.0-py3-none-any.whl"], 1, id="other-file"),
    ],
)  # fmt: skip
def test_wheel_is_the_one_an_installer_takes(files: list[str], expected: int) -> None:
    assert taken(*files) == taken(*reversed(files)) == files[expected]


def test_wheel_says_where_it_comes_from_without_credentials() -> None:
    text = lock("torch-2.10.0%2Bcpu-py3-none-any.whl").replace("https://", "https://u:secret@")
    found = pylock.read(text, RANKS)
    assert found.wheels[0] == pylock.Wheel(
        name="torch",
        version="2.10.0",
        file="torch-2.10.0+cpu-py3-none-any.whl",
        sha256=SHA,
        size=7,
        source="h.example",
    )
    assert "secret" in found.urls["torch-2.10.0+cpu-py3-none-any.whl"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            lock("torch-2.10.0-cp312-cp312-linux_x86_64.whl"), "no wheel that fits", id="no-fit"
        ),
        pytest.param(
            '[[packages]]\nname = "a"\nversion = "1"\n', "no wheel that fits", id="no-wheels"
        ),
        pytest.param(lock("a-1-py3-none-any.whl", sha256=""), "without a sha256", id="no-hash"),
        pytest.param(2 * lock("a-1-py3-none-any.whl"), "resolved twice: torch", id="twice"),
        pytest.param("x", "cannot be read", id="not-toml"),
        pytest.param("packages = 1", "cannot be read", id="not-a-lock"),
        pytest.param("[[packages]]\nversion = 1", "cannot be read", id="no-name"),
    ],
)
def test_unusable_lock_is_an_integrity_error(text: str, expected: str) -> None:
    with pytest.raises(IntegrityError, match=expected):
        pylock.read(text, RANKS)


def test_written_lock_names_one_wheel_with_its_hash() -> None:
    found = pylock.read(lock("torch-2.10.0-py3-none-any.whl"), RANKS)
    written = tomllib.loads(pylock.write(found))
    assert written["lock-version"] == "1.0"
    assert written["packages"][0]["wheels"] == [
        {
            "name": "torch-2.10.0-py3-none-any.whl",
            "url": "https://h.example/x/torch-2.10.0-py3-none-any.whl",
            "size": 7,
            "hashes": {"sha256": SHA},
        }
    ]


NAMES = st.from_regex(r"\A[a-z][a-z0-9]{0,8}\Z")
VERSIONS = st.from_regex(r"\A[0-9]{1,3}(\.[0-9]{1,3}){0,2}\Z")


@given(st.dictionaries(NAMES, VERSIONS, max_size=5))
def test_written_lock_reads_back(packages: dict[str, str]) -> None:
    text = "packages = []" if not packages else ""
    text += "".join(
        lock(f"{name}-{version}-py3-none-any.whl", name=name, version=version)
        for name, version in packages.items()
    )
    found = pylock.read(text, RANKS)
    assert [wheel.name for wheel in found.wheels] == sorted(packages)
    if packages:
        assert pylock.read(pylock.write(found), RANKS) == found


@given(st.text())
def test_any_text_is_a_lock_or_an_integrity_error(text: str) -> None:
    try:
        pylock.read(text, RANKS)
    except IntegrityError as error:
        assert error.reference == "lock-not-usable"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_quoted_for_toml(text: str) -> None:
    assert tomllib.loads(f"x = {quoted(text)}\ny = {array([text, text])}") == {
        "x": text,
        "y": [text, text],
    }


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_file_name_is_taken_or_passed_over(name: str) -> None:
    fitting = lock("torch-2.10.0-py3-none-any.whl").removesuffix("]\n")
    odd = f'{{ name = {quoted(name)}, url = "https://h.example/x" }}'
    found = pylock.read(f"{fitting}, {odd}]\n", RANKS)
    assert found.wheels[0].file == "torch-2.10.0-py3-none-any.whl"
