"""`envdoctor facts`."""

from __future__ import annotations

from typing import Annotated

import typer

from envdoctor.commands.options import (
    FactsOption,
    PrefixOption,
    ProbeOption,
    ProbeTimeoutOption,
    PythonOption,
    RedactOption,
    SysrootOption,
    chosen_place,
    chosen_probing,
    print_json,
)


def facts(
    *,
    python: PythonOption = None,
    prefix: PrefixOption = None,
    given: FactsOption = None,
    sysroot: SysrootOption = None,
    probe: ProbeOption = False,
    probe_timeout: ProbeTimeoutOption = None,
    redact: RedactOption = False,
    all_records: Annotated[
        bool, typer.Option("--all", help="Compare the files of every package, not only CUDA's.")
    ] = False,
) -> None:
    """Write down what was read of an environment and its machine, as JSON.

    `envdoctor check --facts FILE` judges it, on this machine or another.
    """
    from envdoctor.diagnose import gather
    from envdoctor.facts import PolicyFact
    from envdoctor.facts.snapshot import to_data

    place = chosen_place(
        python=python,
        prefix=prefix,
        facts=given,
        sysroot=sysroot,
        all_records=all_records,
        probing=chosen_probing(probe=probe, timeout=probe_timeout),
    )
    found = gather(place, PolicyFact())
    if redact:
        from envdoctor.redaction import redactor_for, this_host

        found = redactor_for(found, hosts=[this_host()]).facts(found)
    print_json(to_data(found))
