from __future__ import annotations

import json
import string
import typing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envdoctor.errors import UserFileError
from envdoctor.facts import (
    Fact,
    FactSet,
    HostFact,
    PolicyFact,
    RunFact,
    TorchBuildFact,
    VariablesFact,
)
from envdoctor.facts.snapshot import from_data, kind_name, kinds, load, to_data
from envdoctor.probes.registry import PROBES
from tests.machines import HEALTHY

TEXT = st.text(st.characters(exclude_categories=[]), max_size=12)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a type that facts are made of."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return facts_of(kind)
    if origin is tuple:
        several = st.lists(values_of(arguments[0]), max_size=2).map(tuple)
        return several if arguments[-1] is ... else st.tuples(*map(values_of, arguments))
    if origin is dict:
        return st.dictionaries(TEXT, values_of(arguments[1]), max_size=2)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if arguments:
        return st.one_of(*map(values_of, arguments))
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        int: st.integers(),
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
        type(None): st.none(),
    }
    return plain[kind]


def facts_of(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: values_of(hints[field.name]) for field in fields(kind)})


@pytest.mark.parametrize("name", sorted(kinds()))
def test_every_kind_survives_the_way_through_a_file(name: str) -> None:
    kind = kinds()[name]

    @settings(max_examples=15)
    @given(facts_of(kind))
    def round_trip(fact: Fact) -> None:
        text = json.dumps(to_data(FactSet([fact])))
        assert from_data(json.loads(text), source="x").need(kind) == fact

    round_trip()


def test_kinds_are_those_that_are_read() -> None:
    assert set(kinds().values()) | {PolicyFact, RunFact} >= {kind for kind, _ in PROBES}
    assert kind_name(TorchBuildFact) == "torch_build"


def test_what_could_not_be_read_keeps_its_reason() -> None:
    facts = FactSet(HEALTHY).lacking(HostFact, "no permission")
    again = from_data(json.loads(json.dumps(to_data(FactSet([], facts.unavailable)))), source="x")
    assert again.unavailable[HostFact].reason == "no permission"


def test_what_is_wanted_of_an_environment_is_no_reading() -> None:
    assert "policy" not in to_data(FactSet(HEALTHY))["facts"]


HOST = {"machine": "x86_64", "kernel": "6", "glibc": None, "shm_bytes": 1, "disk_free_bytes": 1}
GPU = {"index": 0, "name": "x", "capability": "9.0", "memory_bytes": 1}


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        pytest.param({"hots": {}}, "facts.hots: unknown key; did you mean host?", id="kind"),
        pytest.param(
            {"host": HOST | {"glibcs": "2"}},
            "facts.host.glibcs: unknown key; did you mean glibc?",
            id="key",
        ),
        pytest.param(
            {"host": HOST | {"shm_bytes": "64m"}},
            "facts.host.shm_bytes: found '64m', wanted a whole number or null",
            id="type",
        ),
        pytest.param(
            {"host": HOST | {"shm_bytes": True}},
            "facts.host.shm_bytes: found True, wanted a whole number or null",
            id="a-bool-is-no-number",
        ),
        pytest.param({"host": []}, "facts.host: found [], wanted an object", id="list-for-object"),
        pytest.param(
            {"host": {"machine": "x"}}, "facts.host.kernel: missing, wanted text", id="missing"
        ),
        pytest.param(
            {"nvidia": {"num_devices": 1, "gpus": [GPU, GPU | {"index": None}]}},
            "facts.nvidia.gpus[1].index: found None, wanted a whole number",
            id="further-in",
        ),
        pytest.param(
            {"variables": {"values": [["A"]]}},
            "facts.variables.values[0]: found ['A'], wanted a list of 2",
            id="pair",
        ),
        pytest.param(
            {"variables": {"values": 5}}, "values: found 5, wanted a list", id="number-for-list"
        ),
    ],
)
def test_wrong_snapshot_names_file_key_and_wanted_type(facts: Any, says: str) -> None:
    with pytest.raises(UserFileError) as caught:
        from_data({"schema_version": 1, "facts": facts}, source="box.json")
    assert caught.value.message.startswith("box.json: ")
    assert says in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("raw", [[], 5, None, {}, {"schema_version": 2}, {"facts": {}}])
def test_document_that_is_no_snapshot(raw: Any) -> None:
    with pytest.raises(UserFileError):
        from_data(raw, source="x")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000])
def test_file_that_is_no_json(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "facts.json"
    path.write_bytes(content)
    with pytest.raises(UserFileError):
        load(path)


def test_file_that_is_absent() -> None:
    with pytest.raises(UserFileError, match="no such file"):
        load(Path("/no/such/file"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["host", "nvidia", "gpus", "x"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_any_json_is_read_or_refused(value: Any) -> None:
    try:
        from_data({"schema_version": 1, "facts": value}, source="x")
    except UserFileError as error:
        assert error.message.startswith("x: ")


@given(st.lists(st.tuples(st.text(string.ascii_letters, min_size=1), TEXT), max_size=4))
def test_variables_keep_bytes_that_are_no_text(pairs: list[tuple[str, str]]) -> None:
    fact = VariablesFact(values=tuple(pairs))
    assert (
        from_data(json.loads(json.dumps(to_data(FactSet([fact])))), source="x").need(VariablesFact)
        == fact
    )
