"""Judge who else can put code into a compile cache: pure, from owners and modes."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envdoctor.caches.entries import CachedFile
    from envdoctor.facts import PathStep

_SHOWN, _REPAIRED = 3, 20
_NOBODY = 65534
"""The owner that a container without root shows for whatever belongs to the host's root."""


@keyword_value
class WeakSpot:
    """One way in which somebody else can put code into a cache.

    Args:
        path: The folder, link or file at fault.
        message: What is wrong with it, in a sentence that begins with the path.
        is_open: True if everybody can write there; False if it belongs to somebody else.
        remedy: A shell command that cures it; empty if a folder of one's own does.
    """

    path: str
    message: str
    is_open: bool = True
    remedy: str = ""


def weak_steps(steps: Iterable[PathStep], *, uid: int) -> Iterator[WeakSpot]:
    """Yield what is wrong on the way to a cache.

    Args:
        steps: From the root of the file system on, the cache's folder last; links in their place.
        uid: Who uses the cache.
    """
    for step in steps:
        if step.uid not in (uid, 0, _NOBODY):
            what = "is a link that belongs" if step.target else "belongs"
            yield WeakSpot(
                path=step.path,
                message=f"{step.path} {what} to uid {step.uid}: they can put code of theirs there",
                is_open=False,
            )
        elif _is_open(step.mode) and not step.target:
            yield WeakSpot(
                path=step.path,
                message=f"{step.path} can be written by everybody "
                f"(mode {stat.S_IMODE(step.mode):04o}, no sticky bit)",
                remedy=f"chmod o-w {_quoted(step.path)}",
            )


def weak_members(
    root: str, folders: Iterable[CachedFile], files: Iterable[CachedFile]
) -> Iterator[WeakSpot]:
    """Yield what is wrong with the permissions below a cache's folder."""
    found = [item for item in folders if _is_open(item.mode) and not stat.S_ISLNK(item.mode)]
    found += [item for item in files if item.mode & stat.S_IWOTH and stat.S_ISREG(item.mode)]
    if found:
        names = ", ".join(item.path for item in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        # By name: where a variable names /tmp or a home folder, -R would change what is no cache.
        paths = " ".join(_quoted(f"{root}/{item.path}") for item in found[:_REPAIRED])
        yield WeakSpot(
            path=f"{root}/{found[0].path}",
            message=f"{root} holds what everybody can write: {names}{more}",
            remedy=f"chmod o-w {paths}",
        )


def _is_open(mode: int) -> bool:
    """Tell whether anybody may put something in place of what lies in a folder."""
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _quoted(path: str) -> str:
    import shlex  # noqa: PLC0415  only where something is wrong

    return shlex.quote(path)
