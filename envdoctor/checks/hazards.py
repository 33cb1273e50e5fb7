"""Checks for versions that are known to be hazardous for training."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envdoctor.check import check
from envdoctor.checks.endings import how_it_ended
from envdoctor.facts import (
    PATCHED_ERROR,
    RACE_ERRORS,
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
_SHOWN = 3
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
    recorded probes are searched for the errors. With `--probe --select fx-tracing-race` it is
    provoked, on a CPU as well, in a minute or two: one thread takes the first backward pass of new
    functions, or traces, while two others call what is compiled already; failed calls are counted
    for four seconds each without a remedy, with one lock, and with a process each. On a GPU three
    threads also start cold, in a process of its own that is ended when it stands still.

    ## Why it matters
    Every call of a compiled function looks at the flag first, before anything that it knows of its
    shapes. While any thread traces, a call in another one raises "Detected that you are using FX to
    symbolically trace a dynamo-optimized function". Compiling traces; so does the first backward
    pass of every new shape; and so does its first recomputation under reentrant checkpointing,
    which compiles a second time because gradients are on there and were off in the forward pass.

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
        2.15.0  backward  0 of 2,402        0 of 349    0 of 7,340
        2.15.0  tracing   0 of 5,485        0 of 3,959  0 of 7,310

    Three threads that start cold on an H200 with torch 2.11.0: without a remedy none of the 3 ever
    ended; with one lock, and with a process each, all 3 did.

    ## Remedy
    One process for each GPU; or one lock that covers forward and backward of every compiled call;
    and for the error, though not for the deadlock, torch 2.14 or later.

    ## Source
    pytorch/pytorch#126024; pytorch/pytorch#168999; counts by envdoctor/probe_scripts/fx_race.py,
    2026-11-30, as tests/benchmarks/fx_race_counts.py repeats them; on the GPU the same program,
    2026-11-30 (train/records), and the deadlock's stacks, 2026-11-29.
    """
    version = torch_build.version or ""
    cases = race.cases if race else ()
    seen = [record for record in logs.records if _is_of_race(record)]
    seen += [record for record in probes.records if _is_of_threads(record)]
    failing = [case for case in cases if case.num_failed or case.num_hung]
    shown = failing or _broken(race)
    is_asked_for = seen or cases or shown
    if torch_build.cuda is None and not is_asked_for:
        return Skipped("torch is not a CUDA build")
    if _is_local(version) and not shown and not _is_of_patches(seen):
        return Ok(_cured(version, seen, cases))
    if not nvidia.gpus and not is_asked_for:
        return Skipped("no GPU to train on")
    return Problem(
        culprit="torch",
        severity=Severity.WARNING if seen or shown else Severity.INFO,
        message=_message(version, seen, race),
        evidence=tuple(_evidence(version, seen, race)),
        remedy=_remedy(version, is_shown=any((seen, failing))),
    )


def _remedy(version: str, *, is_shown: bool) -> Remedy:
    apart = (
        "Start one process for each GPU (torchrun), or hold one lock over forward and backward of "
        "every compiled call"
    )
    if not _is_local(version):
        text = f"{apart}, or take torch 2.14 or later."
    else:
        text = f"{apart}." if is_shown else "Look for what ended the probe, and run it again."
    return Remedy(kind="one-process-per-gpu", text=text)


def _cured(version: str, seen: list[RunRecord], cases: tuple[RaceCase, ...]) -> str:
    """Say that the flag is no longer shared, and what was tried or recorded."""
    tried = "; ".join(_counts(case) for case in cases if case.remedy == "none")
    other = "is of an earlier torch, or of a trace over compiled calls in its own thread"
    recorded = f"; what {seen[0].source} tells {other}" if seen else ""
    told = f"torch {version} keeps the flag of a trace thread-local"
    return f"{told}{f': {tried}' if tried else ''}{recorded}"


def _message(version: str, seen: list[RunRecord], race: RaceProbeFact | None) -> str:
    cases = race.cases if race else ()
    whose = (
        "keeps the flag of an FX trace thread-local"
        if _is_local(version)
        else "shares the flag of an FX trace among threads"
    )
    alone = [case for case in cases if case.remedy == "none" and (case.num_failed or case.num_hung)]
    if alone:
        cured = [case for case in cases if case.remedy != "none"]
        healed = not any(case.num_failed or case.num_hung for case in cured)
        remedies = "none fail with a lock or a process each" if healed else "remedies do not help"
        shows = f"{_counts(alone[0])}; {remedies}"
    elif seen:
        patches = "a trace patches modules for all threads, and " if _is_of_patches(seen) else ""
        shows = f"{patches}{seen[0].source} shows the failure"
    elif race and _broken(race):
        shows = f"the probe {how_it_ended(race.run)}"
    elif cases:
        return f"torch {version} {whose}, though it did not show this time"
    else:
        shows = "compile in one thread only"
    return f"torch {version} {whose}: {shows}"


def _evidence(
    version: str, seen: list[RunRecord], race: RaceProbeFact | None
) -> Iterator[Evidence]:
    if not _is_local(version):
        yield Evidence(subject="torch", expected="2.14 or later for threads", found=version)
    yield from (Evidence(subject=record.source, found=record.text) for record in seen[:_SHOWN])
    for case in race.cases if race else ():
        subject = f"{_SCENARIOS[case.scenario]}, {_REMEDIES[case.remedy]}"
        counts = f"{case.num_failed:,} of {case.num_calls:,} failed"
        hung = f"{case.num_hung} workers did not end"
        yield Evidence(subject=subject, found=hung if case.num_hung else counts)
    errors = [case.error for case in (race.cases if race else ()) if case.error]
    yield from (Evidence(subject="what they raise", found=error) for error in errors[:1])
    if race and _broken(race):
        yield Evidence(subject=f"probe at: {race.run.step}", found=race.run.reason)


def _broken(race: RaceProbeFact | None) -> bool:
    """Tell whether the probe ran, and not to its end."""
    return race is not None and race.run.status in ("failed", "crashed", "timed_out")


def _counts(case: RaceCase) -> str:
    """Say what a case came to."""
    if case.num_hung:
        return f"{case.num_hung} workers did not end ({_SCENARIOS[case.scenario]})"
    return f"{case.num_failed:,} of {case.num_calls:,} {_SCENARIOS[case.scenario]} failed"


def _is_of_patches(seen: list[RunRecord]) -> bool:
    """Tell whether a trace patched the modules of other threads, which no release has ended."""
    return any(PATCHED_ERROR in record.text for record in seen)


def _is_of_race(record: RunRecord) -> bool:
    return any(text in record.text for text in RACE_ERRORS)


def _is_of_threads(record: RunRecord) -> bool:
    return _is_of_race(record) or "thread" in record.source.lower()


def _is_local(version: str) -> bool:
    """Tell whether each thread of this torch has a flag of its own."""
    return _release(version) >= THREAD_LOCAL_SINCE


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:2])
