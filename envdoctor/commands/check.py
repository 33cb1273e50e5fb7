"""`envdoctor check`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.commands.options import (
    FactsOption,
    OutputFormat,
    PrefixOption,
    ProbeOption,
    ProbeTimeoutOption,
    ProfileOption,
    PythonOption,
    RedactOption,
    SysrootOption,
    chosen_logs,
    chosen_place,
    chosen_probing,
    chosen_profile,
    chosen_run,
    hashing_meter,
    print_json,
)

if TYPE_CHECKING:
    from envdoctor.report import Report


def check(
    context: typer.Context,
    *,
    python: PythonOption = None,
    prefix: PrefixOption = None,
    profile: ProfileOption = None,
    facts: FactsOption = None,
    sysroot: SysrootOption = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="Also judge this run file of the trainer: its layout, and how large its attention "
            "would be if it were dense.",
        ),
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option(help="Look for known failures in this log of an earlier run; repeatable."),
    ] = None,
    output: Annotated[
        OutputFormat, typer.Option("--format", help="How to print.")
    ] = OutputFormat.TEXT,
    select: Annotated[
        list[str] | None, typer.Option(help="Run only this check and what it requires; repeatable.")
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="Do not count what this check reports; repeatable."),
    ] = None,
    expect_gpu: Annotated[
        bool | None,
        typer.Option("--expect-gpu/--no-gpu", help="A missing GPU is an error / is fine."),
    ] = None,
    all_records: Annotated[
        bool, typer.Option("--all", help="Compare the files of every package, not only CUDA's.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also compare the hash of every recorded file.")
    ] = False,
    drift: Annotated[
        bool,
        typer.Option(
            "--drift",
            help="Instead compare a built or adopted environment with what it was when it passed: "
            "by stat, with --deep by hash. Default: the one that was built last.",
        ),
    ] = False,
    probe: ProbeOption = False,
    probe_timeout: ProbeTimeoutOption = None,
    redact: RedactOption = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Also list what was looked at, or all that has changed."
        ),
    ] = False,
) -> None:
    """Find what is wrong with a Python environment, and name the command that cures it.

    Reads files only: without --probe nothing of the environment runs, and torch is never imported
    here. Without --python or --prefix it looks at the environment envdoctor is installed in.

    Exit code 0 if there is at most a warning, 1 if a problem was found.
    """
    if drift:
        from envdoctor.commands.drift import check_drift, chosen_environment, refuse_others

        refuse_others(context)
        env = chosen_environment(python, prefix, profile)
        raise typer.Exit(check_drift(env, output, deep=deep, verbose=verbose))

    from envdoctor.checks import BUILTIN_CHECKS
    from envdoctor.diagnose import gather, judge, policy_of
    from envdoctor.runner import select as choose
    from envdoctor.suppressions import chosen_suppressions

    checks = choose(BUILTIN_CHECKS, select or [])
    wanted = chosen_profile(profile)
    suppressions = chosen_suppressions(wanted, ignore or [], BUILTIN_CHECKS)
    place = chosen_place(
        python=python,
        prefix=prefix,
        facts=facts,
        sysroot=sysroot,
        all_records=all_records,
        probing=chosen_probing(
            probe=probe, timeout=probe_timeout, selected=checks if select else ()
        ),
    )
    meter = hashing_meter() if deep else None
    run = chosen_run(config)
    place = replace(place, logs=chosen_logs(log or []), deep=deep, progress=meter, run=run)
    policy = policy_of(wanted, prefix=place.environment, expect_gpu=expect_gpu)
    found = gather(place, policy)
    report = judge(found, profile=wanted, checks=checks, suppressions=suppressions)
    if redact:
        from envdoctor.redaction import redactor_for, this_host

        report = redactor_for(found, hosts=[this_host()]).apply(report)
    print_report(report, output, verbose=verbose)
    raise typer.Exit(report.exit_code)


def print_report(report: Report, output: OutputFormat, *, verbose: bool = False) -> None:
    """Write a report to stdout."""
    if output is OutputFormat.TEXT:
        from envdoctor.render import report_lines, show

        show(report_lines(report, verbose=verbose))
    elif output is OutputFormat.GITHUB:
        from envdoctor.formats.github import workflow_commands

        sys.stdout.writelines(f"{line}\n" for line in workflow_commands(report))
    elif output is OutputFormat.SARIF:
        from envdoctor.checks import BUILTIN_CHECKS
        from envdoctor.formats.sarif import to_sarif

        print_json(to_sarif(report, BUILTIN_CHECKS))
    else:
        print_json(report.to_dict())
