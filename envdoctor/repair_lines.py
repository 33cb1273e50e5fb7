"""Turn a plan of repairs, and what became of it, into lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.render import Line, closing_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from envdoctor.fix import Repair, Step


def plan_lines(steps: Sequence[Step]) -> Iterator[Line]:
    """Yield what would be run for each problem of a plan."""
    for number, step in enumerate(steps, start=1):
        yield Line(f"{number}. {step.check}: {step.problem.message}")
        yield from (Line(f"     {command}", "bold") for command in step.problem.remedy.commands)


def outcome_lines(done: Repair) -> Iterator[Line]:
    """Yield what was cured, where it stopped, what a person has to do, and how things are now."""
    for step in done.fixed:
        yield Line(f"cured  {step.check} of {step.problem.culprit}", "green")
    if done.failed and done.why:
        yield Line(f"failed {done.failed.check} of {done.failed.problem.culprit}", "bold red")
        yield Line(f"  {done.why.message}")
        if done.why.hint:
            yield Line(f"  hint: {done.why.hint}")
    if done.was_declined:
        yield Line("nothing more was changed")
    for step in done.left:
        yield Line(f"left   {step.check}: {step.problem.message}")
        yield Line(f"  {step.reason}: {step.problem.remedy.text}")
        yield from (Line(f"    {command}") for command in step.problem.remedy.commands)
    yield closing_line(done.report)
