from __future__ import annotations

import pytest

from envdoctor.facts import Fact, LogRecordsFact, ProbeRecordsFact, RunRecord
from envdoctor.verdict import Ok, Severity, Skipped
from tests.machines import nvidia, problem, severity, torch

RACE = (
    "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function"
)
LOG = LogRecordsFact(records=(RunRecord(source="/srv/train.log", text=RACE),))
PROBE = ProbeRecordsFact(records=(RunRecord(source="threads_compile", text="did not end"),))
OTHER = LogRecordsFact(records=(RunRecord(source="/srv/train.log", text="OutOfMemoryError: x"),))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([], Severity.INFO, id="a-note"),
        pytest.param([LOG], Severity.WARNING, id="log-shows-it"),
        pytest.param([PROBE], Severity.WARNING, id="probe-of-threads-failed"),
        pytest.param([OTHER], Severity.INFO, id="log-of-another-failure"),
        pytest.param([torch("2.13.0+cu130"), LOG], Severity.WARNING, id="2.13-is-not-cured"),
        pytest.param([torch("2.14.1+cu130"), LOG], Ok, id="2.14"),
        pytest.param([torch("2.9.1+cpu", None)], Skipped, id="cpu"),
        pytest.param([nvidia(gpus=())], Skipped, id="no-gpu"),
    ],
)
def test_fx_tracing_race(facts: list[Fact], expected: object) -> None:
    assert severity("fx-tracing-race", *facts) == expected


def test_race_names_the_record_and_removes_no_cache() -> None:
    found = problem("fx-tracing-race", LOG)
    assert "/srv/train.log" in found.message
    assert found.remedy.kind == "one-process-per-gpu"
    assert found.remedy.commands == ()
