"""`envdoctor fix`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.commands.options import (
    PrefixOption,
    ProfileOption,
    PythonOption,
    chosen_place,
    chosen_profile,
    hashing_meter,
)
from envdoctor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from envdoctor.facts import FactSet
    from envdoctor.fix import Step
    from envdoctor.report import Report


def fix(
    *,
    python: PythonOption = None,
    prefix: PrefixOption = None,
    profile: ProfileOption = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Cure only what this check finds; repeatable.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Leave alone what this check finds; repeatable.")
    ] = None,
    all_records: Annotated[
        bool, typer.Option("--all", help="Compare the files of every package, not only CUDA's.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also compare the hash of every recorded file.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Apply the remedies that `envdoctor check` names: reinstall, uninstall, remove leftovers.

    Shows the plan and asks. Packages are changed by uv, in the order of the plan; after each
    problem the environment is looked at again, and the first remedy that does not help ends the
    run. The driver, the system and the user's variables are never touched: what they need is shown.
    Notes are left alone, warnings are not: --ignore keeps a check's findings out of the plan.

    Exit code 0 if no error is left, 1 if one is, 5 if a source cannot be reached, 9 if uv is
    missing, 130 if interrupted; running it again goes on.
    """
    from envdoctor import settings
    from envdoctor.action_runner import Runner
    from envdoctor.checks import BUILTIN_CHECKS
    from envdoctor.diagnose import gather, judge, policy_of
    from envdoctor.fix import repair
    from envdoctor.progress import Progress
    from envdoctor.render import show
    from envdoctor.repair_lines import outcome_lines
    from envdoctor.runner import select as choose
    from envdoctor.suppressions import chosen_suppressions
    from envdoctor.talk import Stages

    confirm = _asker(yes=yes, dry_run=dry_run)
    wanted = chosen_profile(profile)
    place = chosen_place(python=python, prefix=prefix, all_records=all_records)
    place = replace(place, deep=deep, progress=hashing_meter() if deep else None)
    policy = policy_of(wanted, prefix=place.environment, expect_gpu=None)
    checks = choose(BUILTIN_CHECKS, select or [])
    suppressions = chosen_suppressions(wanted, ignore or [], BUILTIN_CHECKS)

    def examine() -> tuple[FactSet, Report]:
        facts = gather(place, policy)
        return facts, judge(facts, profile=wanted, checks=checks, suppressions=suppressions)

    stages = Stages(Progress())
    try:
        done = repair(examine, confirm, run=Runner(settings.load(), stages).run, stages=stages)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted in the middle; running it again goes on from there\n")
        raise
    show(outcome_lines(done))
    raise typer.Exit(done.why.exit_code if done.why else done.report.exit_code)


def _asker(*, yes: bool, dry_run: bool) -> Callable[[list[Step]], bool]:
    """Return what shows a plan and asks whether to apply it.

    Raises:
        UsageError: There is nobody to ask.
    """
    from envdoctor.render import show
    from envdoctor.repair_lines import plan_lines

    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError(
            "there is no terminal to ask on",
            reference="nobody-to-ask",
            hint="--yes applies the plan, --dry-run only prints it",
        )

    def confirm(steps: list[Step]) -> bool:
        show(plan_lines(steps))
        return not dry_run and (yes or typer.confirm("Apply this?"))

    return confirm
