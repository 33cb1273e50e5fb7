"""Commands that put packages back or take them away, in the order that keeps shared paths."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envdoctor.facts import DistributionsFact, PolicyFact, RecordsFact

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")


def reinstall(policy: PolicyFact, requirements: Iterable[tuple[str, str]]) -> str:
    """Return the command that reinstalls packages by force.

    Args:
        policy: Says which installer.
        requirements: Pairs of normalised name and version.

    Returns:
        Empty if a name or version is none: METADATA may hold anything.
    """
    pairs = list(requirements)
    if not pairs or not all(_NAME.fullmatch(a) and _VERSION.fullmatch(b) for a, b in pairs):
        return ""
    tags = {version.partition("+")[2] for _, version in pairs} - {""}
    index = "".join(f"--index-url https://download.pytorch.org/whl/{tag} " for tag in sorted(tags))
    return f"{policy.pip_install} {index}{' '.join(f'{a}=={b}' for a, b in pairs)}"


def uninstall(policy: PolicyFact, names: Iterable[str]) -> str:
    """Return the command that uninstalls packages; empty if a name is none."""
    wanted = list(names)
    if not wanted or not all(map(_NAME.fullmatch, wanted)):
        return ""
    return f"{policy.pip_uninstall} {shlex.join(wanted)}"


def uninstall_safely(
    drop: Iterable[str],
    records: RecordsFact,
    installed: DistributionsFact,
    policy: PolicyFact,
    *,
    keep: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the commands that uninstall packages and put back what goes with their files.

    An uninstall deletes every path that the package recorded, also where another recorded it too.

    Args:
        drop: Normalised names to uninstall.
        records: Says which paths are shared.
        installed: Says at which versions the others are installed.
        policy: Says which installer.
        keep: Names to reinstall in any case.
    """
    dropped = list(drop)
    back = list(keep)
    for group in records.shared:
        others = [name for name in group.owners if name not in dropped]
        # One owner is enough where all recorded the same contents.
        if others and len(others) < len(group.owners) and not set(others) & set(back):
            back.append(min(others))
    commands = [uninstall(policy, dropped)]
    if back:
        versions = {files.name: files.original_version for files in records.distributions}
        wanted = ((name, versions.get(name) or installed.version_of(name)) for name in back)
        commands.append(reinstall(policy, wanted))
    return tuple(commands) if all(commands) else ()
