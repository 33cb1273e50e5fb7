"""What `envdoctor check --drift` looks at and how it is printed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from envdoctor.commands.options import OutputFormat, chosen_prefix, print_json
from envdoctor.errors import ExitCode, UsageError
from envdoctor.formats.printable import encodable_data, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envdoctor.drift import Drift


def check_drift(env: Path, output: OutputFormat, *, deep: bool) -> ExitCode:
    """Compare an environment with its manifest, print what has changed, and return the exit code.

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
        for line in _lines(found):
            typer.echo(one_line(line))
    return ExitCode.PROBLEM if found.changes else ExitCode.OK


def chosen_environment(python: str | None, prefix: Path | None, profile: str | None) -> Path:
    """Return the environment that the options name, by default the one that was built last.

    Raises:
        UsageError: An option names what does not exist.
        VerificationError: Nothing is built.
    """
    if python is not None or prefix is not None:
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


def _lines(found: Drift) -> Iterator[str]:
    for one in found.changes:
        detail = f": {one.detail}" if one.detail else ""
        yield f"{one.owner or '(no package)':<24} {one.kind:<8} {one.path}{detail}"
    yield from (f"note: {note}" for note in found.notes)
    owners = sorted({one.owner or "(no package)" for one in found.changes})
    how = "every file hashed" if found.is_deep else "by size, permissions and time"
    looked = f"{found.tree.files} files, {how}"
    if owners:
        number = len(found.changes)
        changes = "1 change" if number == 1 else f"{number} changes"
        yield f"{found.env}: {changes} in {', '.join(owners)} ({looked})"
    else:
        yield f"{found.env}: nothing has changed since it passed ({looked})"
