"""Judge who else can put code into a compile cache: pure, from owners and modes."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envdoctor.caches.entries import CachedFile

_SHOWN = 3


@keyword_value
class Step:
    """One folder or link on the way from the root of the file system to a cache.

    Args:
        path: Where it is.
        uid: Its owner.
        mode: Type and permissions.
        target: Of a link, where it points; empty for a folder.
    """

    path: str
    uid: int
    mode: int
    target: str = ""

    @property
    def is_open(self) -> bool:
        """True if anybody may put something in place of what lies in this folder."""
        return not self.target and bool(self.mode & stat.S_IWOTH) and not self.mode & stat.S_ISVTX


@keyword_value
class WeakSpot:
    """One way in which somebody else can put code into a cache.

    Args:
        path: The folder, link or file at fault.
        message: What is wrong with it, in a sentence that begins with the path.
        remedy: A shell command that cures it; empty if a folder of one's own does.
    """

    path: str
    message: str
    remedy: str = ""


def weak_steps(steps: Iterable[Step], *, uid: int) -> Iterator[WeakSpot]:
    """Yield what is wrong on the way to a cache.

    Args:
        steps: From the root of the file system on, the cache's folder last; links in their place.
        uid: Who uses the cache.
    """
    for step in steps:
        if step.uid not in (uid, 0):
            what = "is a link that belongs" if step.target else "belongs"
            yield WeakSpot(
                path=step.path,
                message=f"{step.path} {what} to uid {step.uid}: they can put code of theirs there",
            )
        elif step.is_open:
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
    found = [
        item
        for item in folders
        if item.mode & stat.S_IWOTH and not item.mode & stat.S_ISVTX and not stat.S_ISLNK(item.mode)
    ]
    found += [item for item in files if item.mode & stat.S_IWOTH and stat.S_ISREG(item.mode)]
    if found:
        names = ", ".join(item.path for item in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        yield WeakSpot(
            path=f"{root}/{found[0].path}",
            message=f"{root} holds what everybody can write: {names}{more}",
            remedy=f"chmod -R o-w {_quoted(root)}",
        )


def _quoted(path: str) -> str:
    import shlex  # noqa: PLC0415  only where something is wrong

    return shlex.quote(path)
