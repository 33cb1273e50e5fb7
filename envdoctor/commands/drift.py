"""What `envdoctor check --drift` looks at and how it is printed."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

import typer

from envdoctor.commands.options import OutputFormat, chosen_prefix, print_json
from envdoctor.errors import ExitCode, UsageError
from envdoctor.formats.printable import encodable_data, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envdoctor.drift import Drift

_SHOWN = 10
_HEEDED = {"drift", "python", "prefix", "profile", "output", "deep", "verbose"}


def refuse_others(context: typer.Context) -> None:
    """Refuse options of `check` that a comparison with a manifest does not heed.

    Raises:
        UsageError: One is given.
    """
    used = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in _HEEDED and _is_given(context, parameter.name or "")
    ]
    if used:
        raise UsageError(f"{', '.join(used)}: not with --drift", reference="drift-options")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_drift(env: Path, output: OutputFormat, *, deep: bool, verbose: bool) -> ExitCode:
    """Compare an environment with its manifest, print what has changed, and return the exit code.

    Args:
        env: The environment's folder.
        output: How to print.
        deep: True to hash every file.
        verbose: True to print every change; otherwise the first ten of each package.

    Raises:
        UsageError: It cannot be printed in this form.
        VerificationError: There is no manifest.
    """
    from envdoctor import drift, settings
    from envdoctor.progress import byte_meter

    if output not in {OutputFormat.TEXT, OutputFormat.JSON}:
        raise UsageError(
            f"--drift prints text or json, not {output}", reference="drift-format", hint=""
        )
    progress = byte_meter("hashed") if deep else None
    found = drift.find(env, home=settings.load().home, deep=deep, progress=progress)
    if output is OutputFormat.JSON:
        print_json(encodable_data({"schema": 1, "is_clean": not found.changes, **_plain(found)}))
    else:
        for line in _lines(found, shown=len(found.changes) if verbose else _SHOWN):
            typer.echo(one_line(line))
    return ExitCode.PROBLEM if found.changes else ExitCode.OK


def chosen_environment(python: str | None, prefix: Path | None, profile: str | None) -> Path:
    """Return the environment that the options name, by default the one that was built last.

    Raises:
        UsageError: An option names what does not exist.
        VerificationError: Nothing is built.
    """
    if python is not None or prefix is not None:
        if profile is not None:
            raise UsageError(
                "--profile names a built environment, --prefix or --python another",
                reference="two-environments",
                hint="give one of them",
            )
        return chosen_prefix(python, prefix)
    from envdoctor import settings
    from envdoctor.generations import current_of, place_of

    place = place_of(profile, settings.load())
    return place.envs / current_of(place)


def _plain(found: Drift) -> dict[str, object]:
    from msgspec import to_builtins

    changes = [asdict(one) for one in found.changes]
    return {
        "prefix": found.env,
        "deep": found.is_deep,
        "changes": changes,
        "notes": list(found.notes),
        "tree": to_builtins(found.tree),
    }


def _lines(found: Drift, *, shown: int) -> Iterator[str]:
    for owner, group in groupby(found.changes, key=lambda one: one.owner or "(no package)"):
        changes = list(group)
        for one in changes[:shown]:
            detail = f": {one.detail}" if one.detail else ""
            yield f"{owner:<24} {one.kind:<8} {one.path}{detail}"
        if len(changes) > shown:
            yield f"{owner:<24} and {len(changes) - shown} more; --verbose lists all"
    yield from (f"note: {note}" for note in found.notes)
    owners = sorted({one.owner or "(no package)" for one in found.changes})
    how = "every file hashed" if found.is_deep else "by size, permissions and time"
    looked = f"{found.tree.files} files, {how}"
    if owners:
        number = len(found.changes)
        how_many = "1 change" if number == 1 else f"{number} changes"
        yield f"{found.env}: {how_many} in {', '.join(owners)} ({looked})"
    else:
        yield f"{found.env}: nothing has changed since it passed ({looked})"
