"""How a program of `--probe` ended, in words that the checks of what it did share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.verdict import Evidence, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.facts import ProbeRun

_LOG_LINES = 5
_SIGNALS = {
    "SIGBUS": "a library is shorter than its headers say",
    "SIGSEGV": "a library does not fit the others, or is damaged",
    "SIGABRT": "a library gave up",
    "SIGILL": "a library holds instructions that this CPU lacks, or is damaged",
    "SIGKILL": "something killed it, as the kernel does when memory is short",
}


def not_judged(run: ProbeRun) -> Skipped | None:
    """Return why a program that did not run says nothing; None if it ran."""
    return Skipped(run.reason) if run.status in ("not_run", "skipped") else None


def how_it_ended(run: ProbeRun) -> str:
    """Say how a program ended that did not pass."""
    at = f" (at: {run.step})" if run.step else ""
    if run.status == "crashed":
        meaning = _SIGNALS.get(run.reason, "")
        return f"was ended by {run.reason}{at}{f': {meaning}' if meaning else ''}"
    if run.status == "timed_out":
        return f"{run.reason}{at}"
    return f"failed{at}: {run.reason}"


def evidence_of(run: ProbeRun) -> Iterator[Evidence]:
    """Yield the telling lines that a program wrote: of a crash the first, else the last."""
    lines = [line for line in run.log.splitlines() if line.strip()]
    telling = lines[:_LOG_LINES] if run.status == "crashed" else lines[-_LOG_LINES:]
    for line in telling:
        yield Evidence(subject="standard error", found=line)
