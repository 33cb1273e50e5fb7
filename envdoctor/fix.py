"""Apply the remedies of a report, one problem after the other, looking again after each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envdoctor.actions import Action, reach_of, understand
from envdoctor.errors import EnvdoctorError, VerificationError
from envdoctor.value import keyword_value
from envdoctor.verdict import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Callable

    from envdoctor.facts import FactSet
    from envdoctor.report import Report
    from envdoctor.talk import Stages

_UNDECIDED = frozenset({"separate-environments"})
"""Kinds of remedy that take a decision, whatever their commands."""

_MAX_ROUNDS = 5


@keyword_value
class Step:
    """One problem of a plan.

    Args:
        check: Id of the check that found it.
        problem: What was found.
        actions: What cures it, in order; empty if a person has to.
        reason: Why a person has to; empty otherwise.
    """

    check: str
    problem: Problem
    actions: tuple[Action, ...] = ()
    reason: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What tells one problem from another, in two reports as well."""
        return self.check, self.problem.culprit


@keyword_value
class Repair:
    """What became of a plan.

    Args:
        report: The last look at the environment.
        fixed: The steps that helped.
        left: What a person has to do.
        failed: The step at which it stopped; None if all helped.
        why: What went wrong at that step.
        was_declined: True if the user did not want a plan.
    """

    report: Report
    fixed: tuple[Step, ...] = ()
    left: tuple[Step, ...] = ()
    failed: Step | None = None
    why: EnvdoctorError | None = None
    was_declined: bool = False


def plan(report: Report, facts: FactSet) -> list[Step]:
    """Return what would be done about each problem, errors first; notes are left alone."""
    reach = reach_of(facts)
    steps = []
    for finding, problem in report.ranked():
        if problem.severity is Severity.INFO:
            continue
        read = [understand(command, reach) for command in problem.remedy.commands]
        actions = tuple(action for action in read if action)
        reason = _reason(problem, is_understood=len(actions) == len(read))
        steps.append(
            Step(
                check=finding.check,
                problem=problem,
                actions=() if reason else actions,
                reason=reason,
            )
        )
    return steps


def _reason(problem: Problem, *, is_understood: bool) -> str:
    if problem.owner == "admin":
        return "the host's administrator has to act"
    if problem.owner == "image":
        return "whoever builds the image has to act"
    if problem.remedy.kind in _UNDECIDED:
        return "it takes a decision"
    if not problem.remedy.commands:
        return "no command cures it"
    return "" if is_understood else "it is no change of this environment's packages"


@dataclass(slots=True)
class _State:
    facts: FactSet
    report: Report
    fixed: list[Step] = field(default_factory=list)
    tried: set[tuple[str, str]] = field(default_factory=set)

    def plan(self) -> list[Step]:
        return plan(self.report, self.facts)

    def ended(
        self,
        *,
        failed: Step | None = None,
        why: EnvdoctorError | None = None,
        was_declined: bool = False,
    ) -> Repair:
        return Repair(
            report=self.report,
            fixed=tuple(self.fixed),
            left=tuple(step for step in self.plan() if not step.actions),
            failed=failed,
            why=why,
            was_declined=was_declined,
        )


def repair(
    examine: Callable[[], tuple[FactSet, Report]],
    confirm: Callable[[list[Step]], bool],
    *,
    run: Callable[[Action], None],
    stages: Stages,
) -> Repair:
    """Cure what can be cured, and look again after each problem.

    It stops at the first problem that is still there after its remedy. What a remedy brings up is
    a plan of its own, which is confirmed as well.

    Args:
        examine: Reads the environment and judges it.
        confirm: Shown a plan, tells whether to go on.
        run: Runs one action; raises if it does not succeed.
        stages: Told what is done.
    """
    state = _State(*examine())
    for _ in range(_MAX_ROUNDS):
        steps = [step for step in state.plan() if step.actions and step.key not in state.tried]
        if not steps:
            break
        if not confirm(steps):
            return state.ended(was_declined=True)
        for step in steps:
            if why := _cure(step, state, examine, run, stages):
                return state.ended(failed=step, why=why)
    return state.ended()


def _cure(
    step: Step,
    state: _State,
    examine: Callable[[], tuple[FactSet, Report]],
    run: Callable[[Action], None],
    stages: Stages,
) -> EnvdoctorError | None:
    """Apply one step and look again; return why it did not help, None if it did."""
    now = {item.key: item for item in state.plan()}
    # What an earlier step cured needs nothing; what it changed has to be confirmed anew.
    if step.key not in now or now[step.key].actions != step.actions:
        return None
    state.tried.add(step.key)
    failure: EnvdoctorError | None = None
    for actions in dict.fromkeys((step.actions, tuple(map(past_cache, step.actions)))):
        try:
            with stages.stage("fix", f"{step.check} of {step.problem.culprit}"):
                for action in actions:
                    run(action)
        except EnvdoctorError as error:
            failure = error
        state.facts, state.report = examine()
        if failure or step.key not in {item.key for item in state.plan()}:
            break
    else:
        failure = VerificationError("it is still there", reference="remedy-did-not-help")
    if failure is None:
        state.fixed.append(step)
    return failure


def past_cache(action: Action) -> Action:
    """Return an installation that takes nothing from uv's cache.

    uv links files out of its cache, so whoever wrote into one in place damaged the cached one too.
    """
    if action.program != "uv" or "install" not in action.arguments:
        return action
    return replace(action, arguments=(*action.arguments, "--no-cache"))
