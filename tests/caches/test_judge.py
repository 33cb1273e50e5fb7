from __future__ import annotations

import pytest

from envdoctor.caches.entries import CachedFile, Entry
from envdoctor.caches.fingerprint import Fingerprint
from envdoctor.caches.judge import Surroundings, judge
from envdoctor.probes.cache_content import Saying
from envdoctor.probes.cache_readings import Reading

ENTRY = Entry("graph", "graph", (CachedFile("graph", 1, 1, 0o100644, 0),))
ON_H200 = Surroundings(
    fingerprint=Fingerprint(torch="2.11.0+cu130", machine="x86_64", gpus=("NVIDIA H200 sm_90",)),
    marks={},
    systems=frozenset({"a" * 64}),
    devices=frozenset({"NVIDIA H200"}),
    archs=frozenset({90}),
)
WITHOUT_GPU = Surroundings(
    fingerprint=Fingerprint(torch="2.11.0+cu130", machine="x86_64"),
    marks={},
    systems=frozenset({"b" * 64}),
)


@pytest.mark.parametrize(
    ("around", "said", "reason"),
    [
        pytest.param(ON_H200, Saying(system="a" * 64), "", id="same-system"),
        pytest.param(ON_H200, Saying(system="c" * 64, device="NVIDIA H200"), "", id="same-gpu"),
        pytest.param(
            ON_H200, Saying(system="c" * 64), "where no GPU was seen, with", id="made-without-gpu"
        ),
        pytest.param(
            ON_H200,
            Saying(system="c" * 64, device="NVIDIA A100"),
            "for NVIDIA A100, here is NVIDIA H200",
            id="another-gpu",
        ),
        pytest.param(
            WITHOUT_GPU,
            Saying(system="c" * 64, device="NVIDIA H200"),
            "for NVIDIA H200, with another",
            id="made-with-gpu",
        ),
    ],
)
def test_system_of_a_graph(around: Surroundings, said: Saying, reason: str) -> None:
    found = judge(ENTRY, Reading(sayings=(said,)), around, ())
    assert found.kind == ("foreign" if reason else "unknown")
    assert not reason or found.reason.startswith(reason)
