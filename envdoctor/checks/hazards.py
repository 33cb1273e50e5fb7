"""Checks for versions that are known to be hazardous for training."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envdoctor.check import check
from envdoctor.facts import (
    LogRecordsFact,
    NvidiaFact,
    ProbeRecordsFact,
    RaceProbeFact,
    RunRecord,
    TorchBuildFact,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.facts import RaceCase

THREAD_LOCAL_SINCE = (2, 14)
_RACE = re.compile(
    r"FX to symbolically trace a dynamo-optimized function"
    r"|module is not installed as a submodule"
)
_SCENARIOS = {
    "backward": "calls beside another thread's first backward pass",
    "tracing": "calls beside a thread that traces",
    "cold": "cold starts of attention on a GPU",
}
_REMEDIES = {"none": "no remedy", "lock": "one lock", "processes": "a process each"}


@check(requires=["torch-not-installed"])
def fx_tracing_race(
    torch_build: TorchBuildFact,
    nvidia: NvidiaFact,
    logs: LogRecordsFact,
    probes: ProbeRecordsFact,
    race: RaceProbeFact | None,
) -> Verdict:
    """Threads of one process must not call compiled functions with this torch.

    ## What it checks
    The torch version: up to 2.13 the flag that tells of an FX trace in progress is shared by all
    threads of a process, from 2.14 each thread has its own. Logs that were named (`--log`) and
    recorded probes are searched for the error. With `--probe --select fx-tracing-race` it is
    provoked in seconds, on a CPU as well: one thread takes the first backward pass of new
    functions, or traces, while two others call what is compiled already; failed calls are counted
    without a remedy, with one lock, and with a process each. On a GPU three threads also start
    cold, which has a deadline, in a process of its own.

    ## Why it matters
    Every call of a compiled function looks at the flag first, before anything that it knows of its
    shapes. While any thread traces, a call in another one raises "Detected that you are using FX to
    symbolically trace a dynamo-optimized function". Compiling traces; so does the first backward
    pass of every new shape, and so does every recomputation under reentrant checkpointing.

    What does not cure it: a warm cache, because the cache on disk is asked only after the graph was
    traced, which every process does for every shape; a new environment or other versions of the
    libraries around torch; one compiled wrapper for each device, because the flag belongs to the
    process; a warm-up of the forward pass alone, because the first backward pass compiles as well.
    torch 2.13 hides the flag while the forward pass compiles, but not in the backward pass.

    `torch._dynamo.config.error_on_nested_fx_trace = False` turns the error into a silent run of the
    function as it was before it was compiled. For flex_attention that is dense attention, which
    holds all scores: 284 GiB for 32 heads, 32,768 queries and 72,768 keys. Taking torch.compile
    away does the same: flex_attention without torch.compile is dense in every version.

    Several threads that start cold on CUDA wait for each other for ever. The one that compiles
    holds the compile lock, traces a joint graph and waits for autograd's device thread; that thread
    runs another one's backward pass, whose compilation waits for the compile lock. No setting
    helps.

    Tracing in a live process stays unsafe from 2.14 on: `symbolic_trace` patches modules for all
    threads, and calls in others raise "module is not installed as a submodule".

    Failed of all calls in six seconds on a busy CPU; each torch beside another thread's first
    backward pass, and beside a thread that traces:

        torch   beside    no remedy         one lock    a process each
        2.11.0  backward  10,830 of 11,145  0 of 32     0 of 583
        2.11.0  tracing   40,096 of 40,358  0 of 564    0 of 565
        2.13.0  backward  1,049 of 1,800    0 of 4      0 of 1,285
        2.13.0  tracing   47,436 of 47,735  0 of 1,394  0 of 993
        2.14.1  backward  0 of 947          0 of 6      0 of 1,450
        2.14.1  tracing   0 of 1,550        0 of 479    0 of 1,194

    ## Remedy
    One process for each GPU; or one lock that covers forward and backward of every compiled call;
    and for the error, though not for the deadlock, torch 2.14 or later.

    ## Source
    pytorch/pytorch#126024; pytorch/pytorch#168999; counts by envdoctor/probe_scripts/fx_race.py,
    2026-11-30, as tests/benchmarks/fx_race_counts.py repeats them; the deadlock's stacks on H200s
    with torch 2.11.0, 2026-11-29.
    """
    version = torch_build.version or ""
    cases = race.cases if race else ()
    if torch_build.cuda is None and not cases:
        return Skipped("torch is not a CUDA build")
    seen = [record for record in logs.records if _RACE.search(record.text)]
    seen += [record for record in probes.records if _is_of_threads(record)]
    failing = [case for case in cases if case.num_failed or case.num_hung]
    if _release(version) >= THREAD_LOCAL_SINCE and not failing:
        provoked = f": {'; '.join(map(_counts, cases))}" if cases else ""
        return Ok(f"torch {version} keeps the flag of a trace thread-local{provoked}")
    if not seen and not cases and not nvidia.gpus:
        return Skipped("no GPU to train on")
    return Problem(
        culprit="torch",
        severity=Severity.WARNING if seen or failing else Severity.INFO,
        message=_message(version, seen, cases),
        evidence=tuple(_evidence(version, seen, race)),
        remedy=Remedy(
            kind="one-process-per-gpu",
            text="Start one process for each GPU (torchrun), or hold one lock over forward and "
            "backward of every compiled call, or take torch 2.14 or later.",
        ),
    )


def _message(version: str, seen: list[RunRecord], cases: tuple[RaceCase, ...]) -> str:
    is_local = _release(version) >= THREAD_LOCAL_SINCE
    whose = (
        "keeps the flag of an FX trace thread-local"
        if is_local
        else ("shares the flag of an FX trace among threads")
    )
    alone = [case for case in cases if case.remedy == "none" and (case.num_failed or case.num_hung)]
    cured = [case for case in cases if case.remedy != "none"]
    if alone:
        healed = not any(case.num_failed or case.num_hung for case in cured)
        remedies = "none fail with a lock or a process each" if healed else "remedies do not help"
        return f"torch {version} {whose}: {_counts(alone[0])}; {remedies}"
    if cases:
        return f"torch {version} {whose}, though it did not show this time"
    where = f"{seen[0].source} shows the failure" if seen else "compile in one thread only"
    return f"torch {version} {whose}: {where}"


def _evidence(
    version: str, seen: list[RunRecord], race: RaceProbeFact | None
) -> Iterator[Evidence]:
    yield Evidence(subject="torch", expected="2.14 or later for threads", found=version)
    yield from (Evidence(subject=record.source, found=record.text) for record in seen)
    for case in race.cases if race else ():
        subject = f"{_SCENARIOS[case.scenario]}, {_REMEDIES[case.remedy]}"
        counts = f"{case.num_failed:,} of {case.num_calls:,} failed"
        hung = f"{case.num_hung} workers did not end"
        yield Evidence(subject=subject, found=hung if case.num_hung else counts)
    errors = [case.error for case in (race.cases if race else ()) if case.error]
    yield from (Evidence(subject="what they raise", found=error) for error in errors[:1])
    if race and race.run.status not in ("passed", "not_run", "skipped"):
        yield Evidence(subject=f"probe at: {race.run.step}", found=race.run.reason)


def _counts(case: RaceCase) -> str:
    """Say what a case came to."""
    if case.num_hung:
        return f"{case.num_hung} workers did not end ({_SCENARIOS[case.scenario]})"
    return f"{case.num_failed:,} of {case.num_calls:,} {_SCENARIOS[case.scenario]} failed"


def _is_of_threads(record: RunRecord) -> bool:
    return bool(_RACE.search(record.text)) or "thread" in record.source.lower()


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:2])
