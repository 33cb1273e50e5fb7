"""Provoke the FX-tracing race in the inspected interpreter, without and with each remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envdoctor.facts import RACE_REMEDIES, ImportProbeFact, ProbeRun, RaceProbeFact
from envdoctor.probes.started import fact_of, gpus, start

if TYPE_CHECKING:
    from envdoctor.facts import FactSet
    from envdoctor.probes.subject import Subject

_COUNTED_SECONDS = 4
"""How long calls are counted; a thread that compiles needs about one to be in their way."""


def probe_race(subject: Subject, facts: FactSet) -> RaceProbeFact:
    """Run every scenario under every remedy, a process each; the one that hangs on a GPU last.

    Only where it is asked for by name: it takes a minute, and provokes a failure on purpose.
    """
    probing = subject.probing
    if probing is None:
        return RaceProbeFact()
    if probing.kinds is None or not probing.covers(RaceProbeFact):
        reason = "run on request alone: check --probe --select fx-tracing-race"
        return RaceProbeFact(run=ProbeRun(reason=reason))
    if facts.need(ImportProbeFact).run.status != "passed":
        return RaceProbeFact(run=ProbeRun(status="skipped", reason="torch does not import"))
    without_gpu, _ = gpus(subject, facts, RaceProbeFact)
    scenarios = [("backward", "tracing"), *([] if without_gpu else [("cold",)])]
    run, cases = ProbeRun(status="passed", reason=""), list[Any]()
    for names in scenarios:
        for remedy in RACE_REMEDIES:
            arguments = (remedy, str(_COUNTED_SECONDS), *names)
            run, answer = start("fx_race", *arguments, subject=subject, facts=facts)
            cases += answer.get("cases", [])
            if run.status != "passed":
                return fact_of(RaceProbeFact, run, {"cases": cases})
    return fact_of(RaceProbeFact, run, {"cases": cases})
