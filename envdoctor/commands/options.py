"""Options that several commands share, and what they stand for."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.errors import UsageError

if TYPE_CHECKING:
    from envdoctor.profile import Profile

ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", help="Profile by name (cpu, cu128, ...) or path of a TOML file."
    ),
]
PythonOption = Annotated[
    str | None, typer.Option(help="Look at the environment of this interpreter.")
]
PrefixOption = Annotated[Path | None, typer.Option(help="Look at the environment in this folder.")]


class OutputFormat(StrEnum):
    """How a report is written to stdout."""

    TEXT = "text"
    JSON = "json"


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
    if prefix is not None:
        return checked_prefix(prefix)
    return prefix_of_python(python) if python is not None else running_prefix()


def chosen_profile(name: str | None) -> Profile | None:
    """Return the profile that `--profile` names; None if it was not given.

    Raises:
        UsageError: There is no such profile, or its file is not valid.
    """
    if name is None:
        return None
    from envdoctor.profile import load_profile

    return load_profile(name)
