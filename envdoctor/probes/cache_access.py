"""Read who owns each folder and link on the way to a compile cache."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from envdoctor.facts import PathStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envdoctor.caches.entries import CachedFile

_MAX_LINKS = 40
"""Links on one way; the kernel gives up there as well."""


def steps_to(path: str) -> list[PathStep]:
    """Return each folder and link from the root of the file system to a path, as far as it exists.

    Args:
        path: Absolute.
    """
    found: list[PathStep] = []
    pending = [part for part in reversed(path.split("/")) if part]
    here, links = "/", 0
    _add(found, here)
    while pending:
        part = pending.pop()
        if part in (".", ".."):
            here = os.path.dirname(here) if part == ".." else here  # noqa: PTH120  text
            continue
        there = f"{here.rstrip('/')}/{part}"
        step = _add(found, there)
        if step is None:
            break
        if not step.target:
            here = there
            continue
        links += 1
        if links > _MAX_LINKS:
            break
        pending += [one for one in reversed(step.target.split("/")) if one]
        here = "/" if step.target.startswith("/") else here
    return list(dict.fromkeys(found))


def steps_of_links(root: str, files: Iterable[CachedFile]) -> Iterator[list[PathStep]]:
    """Yield the way to each folder that a link below a cache's root leads to.

    Torch follows such a link; a listing does not.
    """
    for file in files:
        path = f"{root}/{file.path}"
        if stat.S_ISLNK(file.mode) and os.path.isdir(path):  # noqa: PTH112  no Path is at hand
            yield steps_to(path)


def _add(found: list[PathStep], path: str) -> PathStep | None:
    try:
        state = os.lstat(path)
        target = os.readlink(path) if stat.S_ISLNK(state.st_mode) else ""  # noqa: PTH115
    except OSError:
        return None
    step = PathStep(path=path, uid=state.st_uid, mode=state.st_mode, target=target)
    found.append(step)
    return step
