"""What a remedy's command would do, as data: only what is understood here is ever run.

A command is text for people. Package names, versions and paths in it come from the environment
that is inspected, so `envdoctor fix` takes it apart by this grammar and starts programs by argument
lists of its own; whatever does not fit the grammar is shown and left to a person.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, Literal

from envdoctor.facts import CachesFact, InterpreterFact, PolicyFact, Unavailable
from envdoctor.value import keyword_value, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from envdoctor.facts import CacheFolder, FactSet

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_EXTRAS = rf"(?:\[{_NAME}(?:,{_NAME})*\])?"
_CLAUSE = r"(?:==|~=|!=|<=|>=|<|>)[A-Za-z0-9.!+_*-]+"
_REQUIREMENT = re.compile(rf"{_NAME}{_EXTRAS}(?:{_CLAUSE}(?:,{_CLAUSE})*)?")
_PACKAGE = re.compile(_NAME)
_TORCH_INDEX = re.compile(r"https://download\.pytorch\.org/whl/(?:cpu|cu\d{3}|rocm[\d.]+|xpu)")


@value
class Action:
    """One program to start.

    Args:
        program: Which; where it lies is found out when it is started.
        arguments: Each one argument, whatever characters it holds.
    """

    program: Literal["uv", "rm", "chmod"]
    arguments: tuple[str, ...]


@keyword_value
class Reach:
    """What actions may touch.

    Args:
        install: Words of the command that reinstalls into the environment, from `pip` on.
        add: Words of the command that installs into it with what is required.
        uninstall: Words of the command that uninstalls from it.
        folders: Its package folders: files below them may be removed.
        entries: Entries of compile caches that may be removed.
    """

    install: tuple[str, ...]
    add: tuple[str, ...]
    uninstall: tuple[str, ...]
    folders: tuple[str, ...]
    entries: frozenset[str] = frozenset()


def reach_of(facts: FactSet) -> Reach:
    """Return what actions on the environment of a snapshot may touch."""
    policy = facts.need(PolicyFact)
    caches = facts.get(CachesFact)
    folders = () if isinstance(caches, Unavailable) else caches.folders
    return Reach(
        install=_from_pip(policy.pip_install),
        add=_from_pip(policy.pip_add),
        uninstall=_from_pip(policy.pip_uninstall),
        folders=facts.need(InterpreterFact).site_packages,
        entries=frozenset(path for folder in folders for path in _entries_of(folder)),
    )


def _entries_of(folder: CacheFolder) -> Iterator[str]:
    """Yield what may be removed of a cache: entries, which may be folders, but never all of it."""
    for entry in folder.entries:
        parent = os.path.dirname(entry.path)  # noqa: PTH120  compared as text
        yield entry.path
        if parent.startswith(f"{folder.path}/"):
            yield parent


def understand(command: str, reach: Reach) -> Action | None:
    """Return what a command does; None if it is none that may be run for the user."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if words[:1] == ["rm"]:
        return _removal(words[1:], reach)
    if words[:1] == ["chmod"]:
        return _permission(words[1:], reach)
    words = list(_from_pip(command))
    if rest := _after(words, reach.uninstall):
        is_fit = all(map(_PACKAGE.fullmatch, rest))
    elif rest := _after(words, reach.install) or _after(words, reach.add):
        is_fit = all(map(_REQUIREMENT.fullmatch, _without_options(rest)))
    else:
        return None
    return Action("uv", tuple(words)) if is_fit else None


def _from_pip(command: str) -> tuple[str, ...]:
    """Return a command's words from `pip` on: `uv pip ...` and `python -m uv pip ...` are one."""
    words = shlex.split(command)
    start = words.index("pip") if "pip" in words else len(words)
    return tuple(words[start:])


def _after(words: Sequence[str], beginning: Sequence[str]) -> list[str]:
    """Return the words behind a beginning; empty if they do not begin so."""
    size = len(beginning)
    return list(words[size:]) if tuple(words[:size]) == tuple(beginning) else []


def _without_options(words: Sequence[str]) -> list[str]:
    """Leave out `--upgrade` and torch's own indexes, the only options that remedies use."""
    rest = [word for word in words if word != "--upgrade"]
    if rest[:1] == ["--index-url"] and len(rest) > 1 and _TORCH_INDEX.fullmatch(rest[1]):
        rest = rest[2:]
    return rest or ["--"]


def _removal(words: Sequence[str], reach: Reach) -> Action | None:
    paths = [word for word in words if word not in ("-r", "--")]
    if not paths or not all(_is_removable(path, reach) for path in paths):
        return None
    return Action("rm", ("-r", "--", *paths))


def _is_removable(path: str, reach: Reach) -> bool:
    return path in reach.entries or _is_inside(path, reach.folders)


def _is_inside(path: str, folders: Sequence[str]) -> bool:
    """Tell whether a path, written without detours, lies below one of the folders."""
    if path != os.path.normpath(path) or not path.startswith("/"):
        return False
    # The last part may be a link, which is removed itself; those above it are followed.
    place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
    return any(place.startswith(f"{os.path.realpath(folder)}/") for folder in folders)


def _permission(words: Sequence[str], reach: Reach) -> Action | None:
    if len(words) == 2 and words[0] == "755" and _is_inside(words[1], reach.folders):  # noqa: PLR2004  mode and path
        return Action("chmod", ("755", "--", words[1]))
    return None
