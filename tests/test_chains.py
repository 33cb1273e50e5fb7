"""What brings a package in."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor import chains
from envdoctor.errors import NoSolutionError
from tests.tiny_wheels import make_wheel
from tests.workbench import Bench

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = """\
delta==1.0                # via gamma
gamma==1.0                # via -c pins.txt, profile-tiny (/x y/pyproject.toml)
My_Pkg==1.0+cpu           # via profile-tiny (pyproject.toml), delta
vllm-flash==1.0           # via delta, eps
eps==1.0                  # via zeta
zeta==1.0                 # via eps
alone==1.0
"""
PARENTS = {
    "delta": ("gamma",),
    "gamma": (),
    "my-pkg": (),
    "vllm-flash": ("delta", "eps"),
    "eps": ("zeta",),
    "zeta": ("eps",),
}


def test_notes_say_who_requires_what() -> None:
    assert chains.parents_of(OUTPUT) == PARENTS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm-flash", ("vllm-flash", "delta", "gamma")),
        ("my-pkg", ("my-pkg",)),
        ("eps", ()),
        ("absent", ()),
    ],
)
def test_chain_is_the_shortest_up_to_a_requirement(name: str, expected: tuple[str, ...]) -> None:
    assert chains.chain_of(name, PARENTS) == expected


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        ((), ""),
        (("a",), 'a is your requirement "A>=1"'),
        (("x", "b", "a"), 'x comes through b <- a <- your requirement "A>=1"'),
        (("x", "unknown"), 'x comes through unknown <- your requirement "unknown"'),
    ],
)
def test_chain_in_words(chain: tuple[str, ...], words: str) -> None:
    assert chains.told(chain, ["!", "A>=1"]) == words


@given(st.text())
def test_any_text_has_parents_or_none(text: str) -> None:
    assert chains.parents_of(text) == {} or "# via " in text


names = st.sampled_from(["a", "b", "c", "d", "e"])


@given(st.dictionaries(names, st.lists(names, max_size=3).map(tuple)), names)
def test_any_chain_ends_at_a_requirement(parents: dict[str, tuple[str, ...]], name: str) -> None:
    chain = chains.chain_of(name, parents)
    if chain:
        assert chain[0] == name
        assert parents[chain[-1]] == ()
        assert all(up in parents[down] for down, up in pairwise(chain))


def test_forbidden_package_is_refused_with_the_chain_that_brings_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    make_wheel(bench.wheels, "gamma", "1.0", requires=["delta"])
    make_wheel(bench.wheels, "delta", "1.0", requires=["vllm-flash"])
    make_wheel(bench.wheels, "vllm-flash", "1.0")
    with pytest.raises(NoSolutionError) as caught:
        bench.build(bench.write(require="gamma==1.0"))
    words = 'vllm-flash comes through delta <- gamma <- your requirement "gamma==1.0"'
    assert f"vllm-flash (vllm*); {words}" in caught.value.message
