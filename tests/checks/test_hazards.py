from __future__ import annotations

from typing import Any

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import (
    Fact,
    LogRecordsFact,
    ProbeRecordsFact,
    ProbeRun,
    RaceCase,
    RaceProbeFact,
    RunRecord,
)
from envdoctor.verdict import Ok, Severity, Skipped
from tests.machines import nvidia, outcome, problem, severity, torch

RACE = (
    "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function"
)
LOG = LogRecordsFact(records=(RunRecord(source="/srv/train.log", text=RACE),))
PROBE = ProbeRecordsFact(records=(RunRecord(source="threads_compile", text="did not end"),))

CALLS: dict[str, Any] = {"num_calls": 900, "num_failed": 0, "num_units": 3, "num_failed_units": 0}
CASE: dict[str, Any] = {**CALLS, "num_hung": 0, "error": ""}
ERROR = {"num_failed": 310, "error": RACE}


def provoked(*changes: dict[str, Any], run: ProbeRun | None = None) -> RaceProbeFact:
    """The race without a remedy, with one lock and with a process each, each changed a little."""
    remedies = ("none", "lock", "processes")
    cases = [
        RaceCase(**{**CASE, "scenario": "backward", "remedy": remedy, **change})
        for remedy, change in zip(remedies, changes, strict=False)
    ]
    run = run or ProbeRun(status="passed", reason="")
    return RaceProbeFact(run=run, cases=tuple(cases))


FAILED = provoked(ERROR, {}, {})
HUNG = provoked({"scenario": "cold", "num_hung": 3, "num_calls": 0}, {}, {})
CALM = provoked({}, {}, {})

PATCHED = LogRecordsFact(
    records=(RunRecord(source="x.log", text="NameError: module is not installed as a submodule"),)
)
ENDED = ProbeRun(status="crashed", reason="SIGSEGV", step="backward, tracing, remedy: none")
BROKEN = RaceProbeFact(run=ENDED)

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
        pytest.param([torch("2.14.1+cu130"), PATCHED], Severity.WARNING, id="2.14-patches"),
        pytest.param([torch("2.14.1+cu130"), BROKEN], Severity.WARNING, id="2.14-probe-broke"),
        pytest.param([BROKEN], Severity.WARNING, id="probe-broke"),
        pytest.param([BROKEN, nvidia(gpus=())], Severity.WARNING, id="probe-broke-without-gpu"),
        pytest.param([BROKEN, torch("2.13.0+cpu", None)], Severity.WARNING, id="broke-on-cpu"),
        pytest.param([torch("2.9.1+cpu", None)], Skipped, id="cpu"),
        pytest.param([torch("2.9.1+cpu", None), LOG], Severity.WARNING, id="cpu-log-shows-it"),
        pytest.param([nvidia(gpus=())], Skipped, id="no-gpu"),
        pytest.param([FAILED], Severity.WARNING, id="provoked"),
        pytest.param([HUNG], Severity.WARNING, id="hung"),
        pytest.param([CALM], Severity.INFO, id="not-seen-this-time"),
        pytest.param([torch("2.13.0+cpu", None), FAILED], Severity.WARNING, id="provoked-on-cpu"),
        pytest.param([torch("2.14.1+cpu", None), CALM], Ok, id="2.14-on-cpu"),
        pytest.param([torch("2.14.1+cu130"), HUNG], Severity.WARNING, id="2.14-hung"),
    ],
)
def test_fx_tracing_race(facts: list[Fact], expected: object) -> None:
    assert severity("fx-tracing-race", *facts) == expected


def test_race_names_the_record_and_removes_no_cache() -> None:
    found = problem("fx-tracing-race", LOG)
    assert "/srv/train.log" in found.message
    assert found.remedy.kind == "one-process-per-gpu"
    assert found.remedy.commands == ()


def test_counts_of_each_remedy_are_shown() -> None:
    found = problem("fx-tracing-race", FAILED)
    assert found.message.startswith("torch 2.10.0+cu128 shares the flag of an FX trace among")
    assert "310 of 900 calls beside another thread's first backward pass failed" in found.message
    assert found.message.endswith("none fail with a lock or a process each")
    shown = [(item.subject.rpartition(", ")[2], item.found) for item in found.evidence[1:]]
    assert shown == [
        ("no remedy", "310 of 900 failed"),
        ("one lock", "0 of 900 failed"),
        ("a process each", "0 of 900 failed"),
        ("what they raise", RACE),
    ]


def test_remedy_that_does_not_help_is_told() -> None:
    assert problem("fx-tracing-race", provoked(ERROR, ERROR, {})).message.endswith(
        "remedies do not help"
    )


def test_deadlock_names_its_threads() -> None:
    found = problem("fx-tracing-race", HUNG)
    assert "3 workers did not end (cold starts of attention on a GPU)" in found.message


def test_probe_that_broke_off_is_told() -> None:
    run = ProbeRun(status="timed_out", reason="did not end within 300 s", step="cold")
    found = problem("fx-tracing-race", provoked(ERROR, run=run))
    assert (found.evidence[-1].subject, found.evidence[-1].found) == (
        "probe at: cold",
        "did not end within 300 s",
    )


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([LOG, CALM], "among threads: /srv/train.log shows the failure"),
        ([BROKEN], "among threads: the probe was ended by SIGSEGV (at: backward, tracing"),
        (
            [torch("2.14.1"), PATCHED],
            "thread-local: a trace patches modules for all threads, and x",
        ),
        ([torch("2.14.1"), HUNG], "thread-local: 3 workers did not end"),
    ],
)
def test_message_says_what_showed_it(facts: list[Fact], words: str) -> None:
    assert words in problem("fx-tracing-race", *facts).message


@pytest.mark.parametrize(("version", "is_named"), [("2.13.0", True), ("2.14.1", False)])
def test_a_later_torch_is_no_remedy_where_it_is_there(version: str, *, is_named: bool) -> None:
    found = problem("fx-tracing-race", torch(version), HUNG)
    assert ("2.14" in found.remedy.text) is is_named
    assert any("2.14" in (item.expected or "") for item in found.evidence) is is_named


def test_probe_that_broke_shows_nothing_of_a_cured_torch() -> None:
    assert "run it again" in problem("fx-tracing-race", torch("2.14.1"), BROKEN).remedy.text
    assert "one lock" in problem("fx-tracing-race", torch("2.13.0"), BROKEN).remedy.text


def test_cured_torch_says_whose_the_failures_of_a_log_are() -> None:
    found = outcome("fx-tracing-race", torch("2.14.1+cu130"), LOG)
    assert isinstance(found, Ok)
    assert "/srv/train.log tells is of an earlier torch" in found.note


def test_cured_torch_says_that_its_flag_is_thread_local() -> None:
    found = outcome("fx-tracing-race", torch("2.14.1+cu130"), CALM)
    assert isinstance(found, Ok)
    assert "thread-local" in found.note
    assert "0 of 900 calls" in found.note


@pytest.mark.parametrize(
    "words",
    [
        "from 2.14 each thread has its own",
        "Every call of a compiled function looks at the flag first",
        "a warm cache",
        "one compiled wrapper for each device",
        "error_on_nested_fx_trace = False",
        "284 GiB",
        "without torch.compile is dense in every version",
        "the compile lock",
        "One process for each GPU",
        "one lock that covers forward and backward",
    ],
)
def test_page_tells_the_whole_story(words: str) -> None:
    (found,) = [item for item in BUILTIN_CHECKS if item.id == "fx-tracing-race"]
    assert words in " ".join(found.explanation.split())
