"""Checks for versions that are known to be hazardous for training."""

from __future__ import annotations

import re

from envdoctor.check import check
from envdoctor.facts import (
    LogRecordsFact,
    NvidiaFact,
    ProbeRecordsFact,
    RunRecord,
    TorchBuildFact,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

_THREAD_LOCAL_SINCE = (2, 14)
_RACE = re.compile(
    r"FX to symbolically trace a dynamo-optimized function"
    r"|module is not installed as a submodule"
)


@check(requires=["torch-not-installed"])
def fx_tracing_race(
    torch_build: TorchBuildFact,
    nvidia: NvidiaFact,
    logs: LogRecordsFact,
    probes: ProbeRecordsFact,
) -> Verdict:
    """Threads of one process must not call compiled functions with this torch.

    ## What it checks
    The torch version: before 2.14 the flag that tells of a trace in progress is shared by all
    threads. Logs that were named (`--log`) and recorded probes are searched for the error.

    ## Why it matters
    While one thread compiles, a call of any compiled function in another raises "Detected that you
    are using FX to symbolically trace a dynamo-optimized function". A warm cache or a warm-up does
    not cure it: a new shape or the first backward compiles again. Three threads on two GPUs can
    also wait for each other for ever.

    ## Remedy
    One process for each GPU; or one lock that covers forward and backward of every compiled call;
    or torch 2.14 or later, where the flag belongs to the thread.

    ## Source
    pytorch/pytorch#126024; pytorch/pytorch#168999; measured on 2.9.1 to 2.15.0, 2026-11-29.
    """
    version = torch_build.version or ""
    if torch_build.cuda is None:
        return Skipped("torch is not a CUDA build")
    seen = [record for record in logs.records if _RACE.search(record.text)]
    seen += [record for record in probes.records if _is_of_threads(record)]
    if _release(version) >= _THREAD_LOCAL_SINCE:
        return Ok(f"torch {version} keeps the flag of a trace for each thread")
    if not seen and not nvidia.gpus:
        return Skipped("no GPU to train on")
    return Problem(
        culprit="torch",
        severity=Severity.WARNING if seen else Severity.INFO,
        message=f"torch {version} shares the flag of an FX trace among threads: "
        + (f"{seen[0].source} shows the failure" if seen else "compile in one thread only"),
        evidence=(
            Evidence(subject="torch", expected="2.14 or later for threads", found=version),
            *(Evidence(subject=record.source, found=record.text) for record in seen),
        ),
        remedy=Remedy(
            kind="one-process-per-gpu",
            text="Start one process for each GPU (torchrun), or hold one lock over forward and "
            "backward of every compiled call, or take torch 2.14 or later.",
        ),
    )


def _is_of_threads(record: RunRecord) -> bool:
    return bool(_RACE.search(record.text)) or "thread" in record.source.lower()


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:2])
