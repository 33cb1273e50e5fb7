"""How to take a file off the dynamic linker's path, by what put it there."""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.verdict import Remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envdoctor.facts import FoundLibrary, VariablesFact
    from envdoctor.verdict import Owner

_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")


class Removal(NamedTuple):
    """What put a file on the path, and how to take it off.

    Args:
        culprit: The variable, the configuration file, or else the file itself.
        owner: Who can change that.
        remedy: What to do.
    """

    culprit: str
    owner: Owner
    remedy: Remedy


def removal_of(found: Sequence[FoundLibrary], variables: VariablesFact) -> Removal:
    """Return how to take files off the path that the same thing put there."""
    first = found[0]
    if first.source in _VARIABLES:
        return _from_variable(first.source, found, variables)
    folders = sorted({folder_of(item) for item in found})
    named = ", ".join(folders)
    if first.via == "ld.so.cache" and first.source:
        return Removal(
            culprit=first.source,
            owner="image",
            remedy=Remedy(
                kind="remove-from-loader-path",
                text=f"Take {named} out of {first.source} and rebuild the cache.",
                commands=(
                    *(_delete_line(folder, first.source) for folder in folders),
                    "sudo ldconfig",
                ),
            ),
        )
    if first.via in ("ld.so.cache", "default"):
        text = f"Take them out of {named}: uninstall the system package that put them there."
        return Removal(culprit=first.path, owner="image", remedy=_off_path(text))
    if first.via == "LD_PRELOAD":
        text = f"Take {first.path} out of {first.source}."
        return Removal(culprit=first.source, owner="image", remedy=_off_path(text))
    text = f"{first.source} names {named} in its own {first.via}: take a build that does not."
    return Removal(culprit=first.source or first.path, owner="user", remedy=_off_path(text))


def folder_of(found: FoundLibrary) -> str:
    """Return the folder that holds a library."""
    return posixpath.dirname(found.path)


def _off_path(text: str) -> Remedy:
    return Remedy(kind="remove-from-loader-path", text=text)


def _from_variable(name: str, found: Sequence[FoundLibrary], variables: VariablesFact) -> Removal:
    dropped = {item.path for item in found} | {folder_of(item) for item in found}
    names = {item.name for item in found} if name == "LD_PRELOAD" else set()
    separators = "[ :]" if name == "LD_PRELOAD" else "[:;]"
    entries = filter(None, re.split(separators, variables.get(name) or ""))
    kept = [item for item in entries if posixpath.normpath(item) not in dropped | names]
    command = f"export {name}={shlex.quote(':'.join(kept))}" if kept else f"unset {name}"
    what = "the entry" if kept else "it"
    return Removal(
        culprit=name,
        owner="user",
        remedy=Remedy(
            kind="unset-env",
            text=f"Take {what} out of {name} where the training process is started; wheels find "
            "their own libraries without it.",
            commands=(command,),
        ),
    )


def _delete_line(folder: str, path: str) -> str:
    pattern = re.sub(r"([][\\.*^$|])", r"\\\1", folder)
    script = rf"\|^{pattern}/*$|d"
    return f"sudo sed -i {shlex.quote(script)} {shlex.quote(path)}"
