"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.errors import UsageError, UserFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from envdoctor.check import Check
    from envdoctor.diagnose import Place
    from envdoctor.probes.subject import NamedRun, Probing
    from envdoctor.profile import Profile

ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        "-p",
        help="Profile by name (cpu, cu128, ...) or path of a TOML file; `auto` goes by the GPUs.",
    ),
]
PythonOption = Annotated[
    str | None, typer.Option(help="Look at the environment of this interpreter.")
]
PrefixOption = Annotated[Path | None, typer.Option(help="Look at the environment in this folder.")]

WheelsOption = Annotated[
    list[Path] | None,
    typer.Option(help="Folder of wheels to look into before any index; repeatable."),
]
UvOption = Annotated[Path | None, typer.Option(help="uv binary to use.")]
NoWaitOption = Annotated[
    bool,
    typer.Option("--no-wait", help="End with 8 where another build of the profile runs."),
]

FactsOption = Annotated[
    Path | None,
    typer.Option(
        "--facts",
        help="Take facts from this snapshot; with --prefix or --sysroot the rest is read.",
    ),
]
RedactOption = Annotated[
    bool,
    typer.Option("--redact", help="Leave out names of users and hosts, home folders, tokens."),
]
SysrootOption = Annotated[
    Path | None,
    typer.Option(help="Read the machine's files below this folder, such as an unpacked image."),
]

ProbeOption = Annotated[
    bool,
    typer.Option(
        "--probe",
        help="Also run programs in the environment's interpreter: import torch, compute on every "
        "GPU, sum over all of them, compile attention. Each in a process of its own.",
    ),
]
ProbeTimeoutOption = Annotated[
    float | None,
    typer.Option(min=1, help="Seconds after which each of these programs is ended."),
]

_DAY_SECONDS = 86_400


class OutputFormat(StrEnum):
    """How a report is written to stdout."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def print_json(data: object) -> None:
    """Write a document to stdout."""
    import json

    json.dump(data, sys.stdout, indent=2)
    sys.stdout.write("\n")


def hashing_meter() -> Callable[[int, int], None] | None:
    """Return what shows how far hashing is; None off a terminal."""
    from envdoctor.progress import byte_meter

    return byte_meter("hashed")


def chosen_prefix(python: str | None, prefix: Path | None) -> Path:
    """Return the folder of the environment that the options name, by default the running one.

    Raises:
        UsageError: Both options are given, or one names no environment.
    """
    from envdoctor.probes.interpreter import checked_prefix, prefix_of_python, running_prefix

    if python is not None and prefix is not None:
        raise UsageError(
            "--python and --prefix name two environments",
            reference="two-environments",
            hint="give one of them",
        )
    if python is not None:
        prefix = prefix_of_python(python)
    return checked_prefix(prefix or running_prefix())


def chosen_profile(name: str | None) -> Profile | None:
    """Return the profile that `--profile` names; None if it was not given.

    Raises:
        UsageError: There is no such profile, or its file is not valid.
    """
    if name is None:
        return None
    from envdoctor.profile import load_profile

    return load_profile(profile_name(name))


def profile_name(name: str) -> str:
    """Return a profile's name or path as it was given; for `auto`, choose and say why."""
    if name != "auto":
        return name
    from envdoctor import settings
    from envdoctor.automatic import for_this_machine

    choice = for_this_machine(settings.load().variables)
    for reason in choice.reasons:
        typer.echo(f"auto: {reason}", err=True)
    return choice.profile


def chosen_probing(
    *, probe: bool, timeout: float | None, selected: Sequence[Check] = ()
) -> Probing | None:
    """Return whether programs may be run in the environment, which, and for how long.

    Args:
        probe: Whether any may.
        timeout: Seconds after which each is ended; None for what each is known to need.
        selected: Checks that were named, whose programs alone are then run.

    Raises:
        UsageError: A time limit is given for what is not run.
    """
    from envdoctor.probes.subject import Probing

    if timeout is not None and not probe:
        raise UsageError("--probe-timeout is for --probe", reference="timeout-of-nothing")
    if timeout is not None and not timeout <= _DAY_SECONDS:  # NaN is in every range
        raise UsageError(
            f"--probe-timeout: found {timeout:g}, wanted seconds, at most {_DAY_SECONDS}",
            reference="no-limit",
        )
    if not probe:
        return None
    tell = _tell_step if sys.stderr.isatty() else None
    if tell:
        tell("programs run in the environment, which takes a minute or two")
    kinds = frozenset(kind for check in selected for _, kind in check.reads) or None
    return Probing(timeout_seconds=timeout, kinds=kinds, tell=tell)


def _tell_step(text: str) -> None:
    """Show on the terminal what a program in the environment begins with."""
    from envdoctor.formats.printable import one_line

    sys.stderr.write(f"probe: {one_line(text)}\n")


def chosen_place(
    *,
    python: str | None,
    prefix: Path | None,
    facts: Path | None = None,
    sysroot: Path | None = None,
    all_records: bool = False,
    probing: Probing | None = None,
) -> Place:
    """Return where facts come from, by the options.

    With a snapshot and neither an environment nor a root, nothing of this machine is read.

    Raises:
        UsageError: An option names what does not exist, or the environment is not told.
        UserFileError: The snapshot is not valid.
    """
    from envdoctor.diagnose import Place
    from envdoctor.facts import FactSet, InterpreterFact
    from envdoctor.probes.subject import THIS_MACHINE

    if probing is not None and (facts is not None or sysroot is not None):
        raise UsageError(
            "--probe runs an environment of this machine, not of a snapshot or mounted root",
            reference="probe-elsewhere",
            hint="take the snapshot there with --probe",
        )
    given = FactSet([])
    if facts is not None:
        from envdoctor.facts.snapshot import load

        given = load(facts)
    root = THIS_MACHINE if sysroot is None else sysroot.absolute()
    if not root.is_dir():
        raise UsageError(f"--sysroot {sysroot}: no such folder", reference="sysroot-not-found")
    described = given.get(InterpreterFact)
    where: Path | None
    if python is None and prefix is None and facts is not None and sysroot is None:
        where = None
    elif isinstance(described, InterpreterFact):
        where = (prefix or Path(described.prefix)).absolute()
    elif sysroot is not None and python is None and prefix is None:
        raise UsageError(
            f"--sysroot {sysroot}: which environment in it?",
            reference="no-environment",
            hint="give its folder with --prefix",
        )
    else:
        where = chosen_prefix(python, prefix)
    return Place(prefix=where, root=root, given=given, all_records=all_records, probing=probing)


def chosen_run(path: Path | None) -> NamedRun | None:
    """Return the run file that `--config` names; None if it was not given.

    Raises:
        UserFileError: It is no file, or not valid.
    """
    if path is None:
        return None
    from envdoctor.probes.subject import NamedRun
    from envdoctor.resources import trainer_module
    from envdoctor.user_files import require

    require(path, reference="run-file-not-valid")
    rules = trainer_module("config")
    try:
        return NamedRun(path=path, config=rules.load_config(path))
    except rules.ConfigError as error:
        raise UserFileError(str(error), reference="run-file-not-valid") from error


def chosen_logs(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the logs that `--log` names.

    Raises:
        UserFileError: One is no file, or may not be read.
    """
    from envdoctor.user_files import require

    for path in paths:
        require(path, reference="no-log", limit_bytes=sys.maxsize)
    return tuple(paths)
