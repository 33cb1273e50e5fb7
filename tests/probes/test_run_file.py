from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.commands.options import chosen_run
from envdoctor.errors import UserFileError
from envdoctor.facts import FactSet, InterpreterFact, RunFact
from envdoctor.probes.gguf import gguf_number
from envdoctor.probes.run_file import heads_of, read_run
from envdoctor.probes.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RUN = """
name = "big"
[target]
path = "{target}"
[draft]
mask_token_id = 5
[data]
train = "train.jsonl"
held_out = "held.jsonl"
max_length = 40000
buckets = [512, 40000]
[train]
num_anchors = 2048
{more}
"""
ENDING = ".attention.head_count"


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf(*entries: tuple[str, bytes]) -> bytes:
    """A header with entries; each value is its type and its bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
    return head + b"".join(text(key) + value for key, value in entries)


NAME = ("general.name", struct.pack("<I", 8) + text("a model"))
TAGS = ("general.tags", struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"))
SIZES = ("some.sizes", struct.pack("<IIQ", 9, 5, 3) + struct.pack("<3i", 1, 2, 3))
HEADS = ("llama.attention.head_count", struct.pack("<II", 4, 32))
PER_LAYER = ("llama.attention.head_count", struct.pack("<IIQ", 9, 5, 1) + struct.pack("<i", 32))


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        pytest.param(gguf(NAME, TAGS, SIZES, HEADS), 32, id="after-lists"),
        pytest.param(gguf(HEADS, NAME), 32, id="first"),
        pytest.param(gguf(NAME, TAGS), None, id="not-there"),
        pytest.param(gguf(PER_LAYER), None, id="one-for-each-layer"),
        pytest.param(b"GGML" + gguf(HEADS)[4:], None, id="another-format"),
        pytest.param(gguf(("x", struct.pack("<I", 99))), None, id="unknown-type"),
        pytest.param(b"", None, id="empty"),
    ],
)
def test_number_of_a_gguf_header(head: bytes, expected: int | None) -> None:
    assert gguf_number(head, ENDING) == expected


@given(st.integers(min_value=0, max_value=200))
def test_header_that_is_cut_off_has_the_number_or_none(size: int) -> None:
    assert gguf_number(gguf(NAME, TAGS, SIZES, HEADS)[:size], ENDING) in (None, 32)


@given(st.binary(max_size=300))
def test_any_bytes_have_a_number_or_none(tail: bytes) -> None:
    found = gguf_number(b"GGUF" + tail, ENDING)
    assert found is None or isinstance(found, int)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_attention_heads": 32}, 32),
        ({"text_config": {"num_attention_heads": 8}}, 8),
        ({"num_attention_heads": "32"}, None),
        ({"num_attention_heads": True}, None),
        ({"text_config": None}, None),
        ([], None),
    ],
)
def test_heads_of_a_config(config: Any, expected: int | None) -> None:
    assert heads_of(config) == expected


def read(folder: Path, target: str, more: str = "", sites: Sequence[str] = ()) -> RunFact:
    path = folder / "run.toml"
    path.write_text(RUN.format(target=target, more=more))
    interpreter = InterpreterFact(
        prefix="/env", python=None, version="3.11", is_venv=True, site_packages=tuple(sites)
    )
    return read_run(Subject(prefix=folder, run=chosen_run(path)), FactSet([interpreter]))


def test_run_file_is_read_at_its_greatest_length(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target/config.json").write_text(json.dumps({"num_attention_heads": 32}))
    found = read(tmp_path, "target", '[layout]\nmode = "threads"\ndrafters = 3')
    assert found == RunFact(
        path=str(tmp_path / "run.toml"),
        mode="threads",
        num_heads=32,
        num_queries=32_768,
        num_keys=72_768,
    )


@pytest.mark.parametrize("target", ["org/model", "package:tiny/gone.gguf", "./nowhere"])
def test_heads_of_a_target_from_elsewhere_are_not_known(tmp_path: Path, target: str) -> None:
    assert read(tmp_path, target).num_heads is None


def test_heads_of_a_packaged_target_are_read_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "site/tiny").mkdir(parents=True)
    (tmp_path / "site/tiny/model.gguf").write_bytes(gguf(NAME, HEADS))
    sites = [str(tmp_path / "none"), str(tmp_path / "site")]
    assert read(tmp_path, "package:tiny/model.gguf", sites=sites).num_heads == 32


def test_no_run_file_asks_for_nothing(tmp_path: Path) -> None:
    assert read_run(Subject(prefix=tmp_path), FactSet([])) == RunFact()
    assert chosen_run(None) is None


def test_bad_run_file_is_named_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(UserFileError, match=r"run\.toml: layout\.modes: unknown key"):
        read(tmp_path, "target", "[layout]\nmodes = 1")
