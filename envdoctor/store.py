"""Where environments, receipts and caches lie, and how one generation replaces another.

HOME/
  wheels/                    what was fetched, see `wheelhouse`
  uv-cache/                  uv's, private to envdoctor
  envs/PROFILE/GENERATION/   environments that passed
  envs/PROFILE/current       symbolic link to the newest good one; `previous` to the one before
  envs/PROFILE/receipts/     GENERATION.json; a generation without one was never finished.
                             GENERATION.manifest, as long as the generation lasts
  staging/PROFILE/           environments in the making
  locks/, logs/, trash/
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envdoctor import links
from envdoctor.durable import sync_file_system, sync_folder
from envdoctor.errors import SpaceError
from envdoctor.probes.files import list_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KEPT_LOGS = 10


@dataclass(frozen=True, slots=True)
class Store:
    """The folders of one profile under a home.

    Args:
        home: Root of everything that envdoctor keeps.
        profile: Name of the profile.
    """

    home: Path
    profile: str

    @property
    def envs(self) -> Path:
        """Folder of the generations."""
        return self.home / "envs" / self.profile

    @property
    def staging(self) -> Path:
        """Folder of what is in the making."""
        return self.home / "staging" / self.profile

    @property
    def cache(self) -> Path:
        """The cache of uv, shared by all profiles."""
        return self.home / "uv-cache"

    @property
    def wheels(self) -> Path:
        """Folder of the wheels, shared by all profiles."""
        return self.home / "wheels"

    @property
    def trash(self) -> Path:
        """What is to be deleted when there is time."""
        return self.home / "trash"

    @property
    def lock_file(self) -> Path:
        """Held while a build works on the profile."""
        return self.home / "locks" / f"{self.profile}.json"

    def receipt(self, generation: str) -> Path:
        """Return where a generation's receipt lies."""
        return self.envs / "receipts" / f"{generation}.json"

    def manifest(self, generation: str) -> Path:
        """Return where a generation's manifest lies."""
        return self.envs / "receipts" / f"{generation}.manifest"

    def linked(self, link: str) -> str | None:
        """Return the generation that `current` or `previous` means, if it is there."""
        return links.linked(self.envs, link)

    def generations(self) -> list[str]:
        """Return all generations on disk, newest receipt first, those without one last."""
        if not self.envs.is_dir():
            return []
        names = [
            path.name
            for path in self.envs.iterdir()
            if path.is_dir() and not path.is_symlink() and path.name != "receipts"
        ]
        return sorted(names, key=self._age)

    def _age(self, generation: str) -> tuple[float, str]:
        receipt = self.receipt(generation)
        return (-receipt.stat().st_mtime if receipt.exists() else 0.0, generation)


def known_profiles(home: Path) -> list[str]:
    """Return the profiles that have a current environment, the one made current last first."""
    links = [path / "current" for path in sorted((home / "envs").glob("*"))]
    links = [link for link in links if link.is_symlink() and link.is_dir()]
    return [link.parent.name for link in sorted(links, key=lambda one: -one.lstat().st_mtime)]


def all_profiles(home: Path) -> list[str]:
    """Return the profiles of which there is any environment, sorted."""
    envs = home / "envs"
    return [name for name in list_folder(envs) if Store(home, name).generations()]


def make_folders(store: Store) -> None:
    """Make what a build needs.

    Raises:
        SpaceError: A folder cannot be made, or a finished environment could not be moved into
            place in one step.
    """
    try:
        receipts = store.envs / "receipts"
        for folder in (receipts, store.wheels, store.cache, store.trash, store.staging):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpaceError(
            f"cannot make folders in {store.home}: {error.strerror}",
            reference="home-not-writable",
            hint="set ENVDOCTOR_HOME to a folder of your own",
        ) from error
    if store.staging.stat().st_dev != store.envs.stat().st_dev:
        raise SpaceError(
            f"{store.staging} and {store.envs} are on two file systems; a finished environment "
            "could not be moved into place in one step",
            reference="two-file-systems",
        )


def new_staging(store: Store) -> Path:
    """Make an empty folder for one build; others may not look into it, as URLs hold passwords."""
    staged = store.staging / f"{os.getpid()}-{time.time_ns():x}"
    staged.mkdir(mode=0o700)
    return staged


def clean(store: Store) -> list[str]:
    """Throw away what dead builds left; call it with the lock held.

    Returns:
        Names of what was thrown away.
    """
    links.settle(store.envs)
    kept = {store.linked("current"), store.linked("previous")}
    left = [store.staging / name for name in list_folder(store.staging)]
    left += [
        store.envs / name
        for name in store.generations()
        if name not in kept and not store.receipt(name).exists()
    ]
    for path in (*left, *_torn_downloads(store)):
        discard(store, path)
    for path in (store.envs / "receipts").glob(".*.tmp"):
        path.unlink(missing_ok=True)
    for path in (store.envs / "receipts").glob("*.manifest"):
        if not (store.envs / path.stem).is_dir():
            path.unlink()
    return [path.name for path in left]


def discard(store: Store, path: Path) -> None:
    """Move a folder to the trash, which is quick; deleting an environment takes up to minutes."""
    store.trash.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        path.rename(store.trash / f"{store.profile}-{path.name}-{time.time_ns():x}")


def empty_trash(store: Store) -> None:
    """Delete what lies in the trash; other builds may be deleting the same."""
    for name in list_folder(store.trash):
        shutil.rmtree(store.trash / name, ignore_errors=True)


def unused_generation(store: Store, identity: str) -> str:
    """Return a folder name for an environment: its identity, numbered if that was ever used."""
    names = (identity if n == 1 else f"{identity}-{n}" for n in range(1, 10**6))
    return next(
        name
        for name in names
        if not (store.envs / name).exists() and not store.receipt(name).exists()
    )


def put(store: Store, staged: Path, generation: str) -> Path:
    """Move a finished environment among the generations; it counts once it has a receipt.

    By then all of it is on disk, so that a power cut leaves no receipt of what is not there.
    """
    sync_file_system(store.home)
    target = store.envs / generation
    staged.rename(target)
    sync_folder(store.envs)
    return target


def make_current(store: Store, generation: str) -> None:
    """Let `current` mean another generation, in one step; what it meant becomes `previous`."""
    links.make_current(store.envs, generation)


def prune(store: Store, keep: int) -> list[str]:
    """Throw away old generations.

    Args:
        store: Whose.
        keep: How many stay at least: current, previous, then the newest.

    Returns:
        Generations that would have gone, but are in use.
    """
    first = [name for link in ("current", "previous") if (name := store.linked(link))]
    ordered = list(dict.fromkeys([*first, *store.generations()]))
    in_use = []
    for name in ordered[max(keep, len(first)) :]:
        if is_leased(store, name):
            in_use.append(name)
        else:
            discard(store, store.envs / name)
            store.manifest(name).unlink(missing_ok=True)
            _lease_file(store, name).unlink(missing_ok=True)
    return in_use


@contextmanager
def lease(store: Store, generation: str) -> Iterator[int]:
    """Keep a generation from being thrown away, as long as any process has the descriptor open.

    Where this may not write, as in a home that is mounted read-only, there is no lease.
    """
    path = _lease_file(store, generation)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:
        descriptor = os.open(store.envs, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor
    finally:
        os.close(descriptor)


def is_leased(store: Store, generation: str) -> bool:
    """Tell whether a process holds a generation."""
    try:
        with _lease_file(store, generation).open("r+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such lease, or no locks here
        return False
    return False


def new_log(store: Store) -> Path:
    """Return a path for the log of a build, and delete the oldest logs."""
    folder = store.home / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob(f"{store.profile}-*.log"))[: -(_KEPT_LOGS - 1)]:
        old.unlink(missing_ok=True)
    return folder / f"{store.profile}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.log"


def _torn_downloads(store: Store) -> list[Path]:
    """Return what killed processes of uv left in its cache; nothing while any uv works there."""
    try:
        # The cache's own lock: each uv holds it, shared, as long as it runs.
        with (store.cache / ".lock").open("r+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return list(store.cache.glob(".tmp*"))
    except OSError:
        return []


def _lease_file(store: Store, generation: str) -> Path:
    return store.home / "locks" / "leases" / f"{store.profile}.{generation}"
