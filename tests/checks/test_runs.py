from __future__ import annotations

from typing import Any

import pytest

from envdoctor.facts import Fact, RunFact
from envdoctor.verdict import Ok, Severity, Skipped
from tests.machines import gpu, nvidia, outcome, problem, severity, torch

GIB = 2**30
KNOWN: dict[str, Any] = {"num_heads": 32, "num_queries": 32_768, "num_keys": 72_768}
CPU = torch("2.13.0+cpu", None)


def run(**changes: Any) -> RunFact:
    return RunFact(**{"path": "run.toml", **KNOWN, **changes})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([RunFact()], Skipped, id="no-run-file"),
        pytest.param([run()], Ok, id="inline"),
        pytest.param([run(mode="threads")], Severity.ERROR, id="threads"),
        pytest.param([run(mode="threads"), torch("2.15.0+cu132")], Severity.ERROR, id="2.15"),
        pytest.param([run(mode="processes")], Severity.ERROR, id="not-yet"),
    ],
)
def test_run_layout_refused(facts: list[Fact], expected: object) -> None:
    assert severity("run-layout-refused", *facts) == expected


@pytest.mark.parametrize(
    ("version", "words"),
    [
        pytest.param("2.11.0+cu130", "torch 2.11.0+cu130 keeps one flag", id="affected"),
        pytest.param("2.14.1+cu130", "which is not supported", id="not-affected"),
    ],
)
def test_refusal_has_the_reason_for_this_torch(version: str, words: str) -> None:
    found = problem("run-layout-refused", run(mode="threads"), torch(version))
    assert found.message.startswith("run.toml: layout.mode: found threads")
    assert words in found.message


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([RunFact()], Skipped, id="no-run-file"),
        pytest.param([run()], Severity.INFO, id="fused-on-an-h200"),
        pytest.param([run(num_heads=1)], Ok, id="would-fit"),
        pytest.param([run(attention="dense")], Severity.ERROR, id="dense-by-choice"),
        pytest.param([run(attention="dense", num_queries=64)], Ok, id="dense-and-small"),
        pytest.param([run(device="cpu")], Severity.ERROR, id="cpu-by-choice"),
        pytest.param([run(), CPU], Severity.ERROR, id="cpu-by-torch"),
        pytest.param([run(), nvidia(gpus=())], Severity.ERROR, id="cpu-by-machine"),
        pytest.param([run(device="cuda"), nvidia(gpus=())], Severity.INFO, id="gpu-elsewhere"),
        pytest.param(
            [run(num_heads=2), nvidia(gpu(), gpu(1, memory_bytes=16 * GIB))],
            Severity.INFO,
            id="smallest-gpu-counts",
        ),
        pytest.param([run(num_heads=None, device="cpu")], Severity.ERROR, id="one-head-is-more"),
        pytest.param([run(num_heads=None)], Ok, id="target-elsewhere"),
    ],
)
def test_dense_attention_too_large(facts: list[Fact], expected: object) -> None:
    assert severity("dense-attention-too-large", *facts) == expected


@pytest.mark.parametrize("facts", [[run()], [run(), CPU], [run(device="cuda"), nvidia(gpus=())]])
def test_known_case_is_284_gib(facts: list[Fact]) -> None:
    said = problem("dense-attention-too-large", *facts).message
    assert (
        "dense scores would take 284 GiB: "
        "1 row x 32 heads x 32,768 draft tokens x 72,768 keys x 4 bytes"
    ) in said


def test_size_is_told_where_it_fits() -> None:
    found = outcome("dense-attention-too-large", run(num_heads=None, num_rows=2))
    assert isinstance(found, Ok)
    assert found.note == (
        "each head's (the target does not lie here) dense scores would take 17.8 GiB: "
        "2 rows x 32,768 draft tokens x 72,768 keys x 4 bytes"
    )
