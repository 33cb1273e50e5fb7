"""What has changed in an environment since it passed."""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor import manifest, surroundings
from envdoctor.errors import VerificationError
from envdoctor.probes.digests import Task, digest_of, mismatches
from envdoctor.seals import seal_of
from envdoctor.verify import UnfitEnvironmentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from envdoctor.manifest import Entry, Manifest, Tree

_SHOWN = 3
_PYTHON = "bin/python"


class ChangeKind(StrEnum):
    """How a file differs from the manifest."""

    MISSING = "missing"
    CHANGED = "changed"
    MODE = "mode"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One file that is not as it was.

    Args:
        kind: How it differs.
        path: Below the environment's folder.
        owner: Package that it belongs to; of an extra file, the one that owns all others in its
            folder. Empty if there is none.
        detail: What was and what is, in words; empty where the kind says it all.
    """

    kind: ChangeKind
    path: str
    owner: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What came of a comparison.

    Args:
        env: The environment's folder.
        changes: Files that differ, sorted by owner and path.
        tree: What the files were when it was sealed.
        is_deep: True if every file was hashed; False if only those were whose time differs.
        notes: What has changed around it; no drift of its files.
    """

    env: str
    changes: tuple[Change, ...]
    tree: Tree
    is_deep: bool
    notes: tuple[str, ...] = ()


def find(
    env: Path,
    *,
    home: Path | None = None,
    deep: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Drift:
    """Compare an environment that envdoctor built or adopted with its manifest.

    Args:
        env: The environment's folder.
        home: Where adopted environments have their manifests; None to look for a built one's only.
        deep: True to hash every file; otherwise only those whose time alone has changed.
        progress: Told bytes hashed and bytes in all, now and then.

    Raises:
        VerificationError: It has no manifest, or cannot be read.
    """
    real = env.resolve()
    seal = seal_of(real, home)
    sealed = seal.read_manifest()
    if sealed is None:
        raise VerificationError(
            f"{env} has no manifest to compare with",
            reference="not-sealed",
            hint="only what `envdoctor build` made, or `envdoctor adopt` took over, has one",
        )
    try:
        changes = compare(real, sealed, deep=deep, progress=progress)
    except OSError as error:
        raise VerificationError(
            f"{error.filename or real}: {error.strerror}", reference="environment-not-readable"
        ) from error
    passed = seal.read_receipt()
    return Drift(
        env=str(real),
        changes=tuple(changes),
        tree=sealed.tree,
        is_deep=deep,
        notes=tuple(surroundings.changes(passed)) if passed else (),
    )


def require_none(env: Path) -> None:
    """Refuse an environment that has changed since it was sealed; one without manifest passes.

    Raises:
        UnfitEnvironmentError: It has.
    """
    if seal_of(env, None).read_manifest() is None:
        return
    changes = find(env).changes
    if changes:
        shown = [f"{one.kind} {one.path}" for one in changes[:_SHOWN]]
        more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        raise UnfitEnvironmentError(
            f"{env} is damaged: it has changed since it was built: {', '.join(shown)}{more}",
            reference="environment-changed",
            hint=f"envdoctor check --drift --prefix {shlex.quote(str(env))}",
        )


def compare(
    env: Path,
    sealed: Manifest,
    *,
    deep: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Change]:
    """Return the files that are not as a manifest says, sorted by owner and path.

    Raises:
        OSError: A folder cannot be listed.
    """
    found = manifest.scan(env)
    changes: list[Change] = []
    doubtful: list[Entry] = []
    for entry in sealed.entries:
        change = _by_stat(env, entry, found.get(entry.path))
        if change is not None:
            changes.append(change)
        if change is None or change.kind is ChangeKind.MODE:
            has_new_time = found[entry.path].st_mtime_ns != entry.mtime_ns
            doubtful += [entry] if stat.S_ISREG(entry.mode) and (deep or has_new_time) else []
    changes += _by_hash(env, doubtful, progress)
    changes += _of_interpreter(sealed.outside, deep=deep)
    changes += _extra(sealed, found)
    return sorted(changes, key=lambda change: (change.owner, change.path))


def _by_stat(env: Path, entry: Entry, status: os.stat_result | None) -> Change | None:
    if status is None:
        return _change(ChangeKind.MISSING, entry)
    if stat.S_IFMT(status.st_mode) != stat.S_IFMT(entry.mode):
        return _change(ChangeKind.CHANGED, entry, "it is of another kind")
    if stat.S_ISLNK(entry.mode):
        return _by_target(env, entry)
    if status.st_size != entry.size:
        detail = f"had {entry.size} bytes, has {status.st_size}"
        return _change(ChangeKind.CHANGED, entry, detail)
    before, now = stat.S_IMODE(entry.mode), stat.S_IMODE(status.st_mode)
    return _change(ChangeKind.MODE, entry, f"was {before:o}, is {now:o}") if now != before else None


def _by_target(env: Path, entry: Entry) -> Change | None:
    link = env / entry.path
    target = str(link.readlink())
    if target != entry.digest:
        return _change(ChangeKind.CHANGED, entry, f"pointed to {entry.digest}, now to {target}")
    if entry.path == _PYTHON and not link.exists():
        return _change(ChangeKind.CHANGED, entry, f"the interpreter {target} is gone")
    return None


def _by_hash(
    env: Path, entries: list[Entry], progress: Callable[[int, int], None] | None
) -> Iterator[Change]:
    tasks = [Task(str(env / one.path), one.digest, one.size) for one in entries]
    wrong = mismatches(tasks, progress=progress) if tasks else {}
    for entry in entries:
        digest = wrong.get((str(env / entry.path), entry.digest))
        if digest is not None:
            detail = digest if digest.startswith("unreadable") else "its content, not its size"
            yield _change(ChangeKind.CHANGED, entry, detail)


def _of_interpreter(outside: tuple[Entry, ...], *, deep: bool) -> Iterator[Change]:
    """Tell which files of the base interpreter were replaced; that one is gone, its link tells."""
    for entry in outside:
        try:
            status = Path(entry.path).stat()
        except OSError:
            continue
        is_same = (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns)
        if is_same and not deep:
            continue
        if status.st_size != entry.size or digest_of(entry.path, "sha256") != entry.digest:
            yield _change(ChangeKind.CHANGED, entry, "the Python below has been replaced")


def _extra(sealed: Manifest, found: Mapping[str, os.stat_result]) -> Iterator[Change]:
    known = {entry.path for entry in sealed.entries}
    owners: dict[str, set[str]] = {}
    for entry in sealed.entries:
        owners.setdefault(os.path.dirname(entry.path), set()).add(entry.owner)  # noqa: PTH120
    for path in found:
        if path not in known:
            beside = owners.get(os.path.dirname(path), set())  # noqa: PTH120
            owner = next(iter(beside)) if len(beside) == 1 else ""
            yield Change(kind=ChangeKind.EXTRA, path=path, owner=owner)


def _change(kind: ChangeKind, entry: Entry, detail: str = "") -> Change:
    return Change(kind=kind, path=entry.path, owner=entry.owner, detail=detail)
