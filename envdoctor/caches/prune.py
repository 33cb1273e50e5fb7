"""Remove entries of a compile cache that were named, by exact path."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from envdoctor.caches import stamp as stamps
from envdoctor.caches.below import open_below
from envdoctor.value import value

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from envdoctor.caches.entries import CachedFile
    from envdoctor.caches.judge import EntryClass, Judgement
    from envdoctor.caches.survey import Survey


@value
class Pruned:
    """What became of the files that were named: paths removed, and paths left with the reason."""

    removed: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    num_bytes: int = 0


def chosen(
    surveys: Sequence[Survey], classes: Collection[EntryClass]
) -> list[tuple[Survey, Judgement]]:
    """Return the entries of some classes, each beside its cache."""
    return [(survey, one) for survey in surveys for one in survey.judgements if one.kind in classes]


def prune(items: Sequence[tuple[Survey, Judgement]], *, home: Path) -> Pruned:
    """Remove the files of entries, and folders that are empty then.

    A file that is no longer as it was listed is left: somebody is at work on it. No link is
    followed, neither at the end of a path nor on the way to it.

    Args:
        items: As `chosen` returned them and a person saw them.
        home: envdoctor's own folder, whose stamps no longer vouch for what is gone.
    """
    removed: list[str] = []
    left: list[tuple[str, str]] = []
    num_bytes = 0
    for survey, one in items:
        gone: list[str] = []
        for file in one.entry.files:
            if reason := _remove(survey.root, file):
                left.append((f"{survey.root}/{file.path}", reason))
            else:
                gone.append(file.path)
                num_bytes += file.size
        removed += [f"{survey.root}/{path}" for path in gone]
        _forget(survey, gone, home=home)
        _remove_empty(survey.root, one.entry.files)
    return Pruned(tuple(removed), tuple(left), num_bytes)


def _forget(survey: Survey, paths: Sequence[str], *, home: Path) -> None:
    gone = set(paths)
    for stamp in stamps.load_all(home, survey.root) if paths else ():
        if any(file.path in gone for file in stamp.files):
            stamps.save(home, stamps.without(stamp, gone))


def _remove(root: str, file: CachedFile) -> str:
    """Remove one file; return why it was left, empty if it is gone."""
    folder, _, name = file.path.rpartition("/")
    try:
        descriptor = open_below(root, folder)
    except OSError as error:
        return f"its folder cannot be opened: {error.strerror}"
    try:
        now = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        if (now.st_size, now.st_mtime_ns, now.st_uid) != (file.size, file.mtime_ns, file.uid):
            return "it has changed since it was listed"
        os.unlink(name, dir_fd=descriptor)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error.strerror)
    finally:
        os.close(descriptor)
    return ""


def _remove_empty(root: str, files: Sequence[CachedFile]) -> None:
    """Remove the folders of files that are empty now; the cache's own folder stays."""
    parents = {file.path.rpartition("/")[0] for file in files}
    folders = {
        "/".join(parts[:length])
        for parts in (parent.split("/") for parent in parents if parent)
        for length in range(1, len(parts) + 1)
    }
    for folder in sorted(folders, key=len, reverse=True):
        parent, _, name = folder.rpartition("/")
        with suppress(OSError):  # not empty, or gone already
            descriptor = open_below(root, parent)
            try:
                os.rmdir(name, dir_fd=descriptor)
            finally:
                os.close(descriptor)
