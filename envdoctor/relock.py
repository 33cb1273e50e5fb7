"""Make the lock of a profile anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from envdoctor import durable, lockfile, locking
from envdoctor.errors import IntegrityError, UsageError, UserFileError
from envdoctor.resolve import resolve
from envdoctor.session import begun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from envdoctor.build import BuildRequest
    from envdoctor.lockfile import Difference
    from envdoctor.plan import BuildPlan
    from envdoctor.pylock import Lock
    from envdoctor.settings import Settings
    from envdoctor.talk import Talk
    from envdoctor.workshop import Workshop


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocked:
    """A lock that was written.

    Args:
        path: Where.
        differences: From the one that was there before.
    """

    path: Path
    differences: tuple[Difference, ...]


def relock(
    request: BuildRequest, *, upgrade: Sequence[str] = (), settings: Settings, talk: Talk
) -> Relocked:
    """Resolve a profile and write its lock.

    Args:
        request: Its `locks` says where; nothing is built.
        upgrade: Packages that may move, all others stay as they are locked; empty for all.
        settings: Where caches lie, and the variables of this process.
        talk: Told of each stage.

    Raises:
        UserFileError: The lock that is there is not valid, or the new one cannot be written.
        UsageError: A package to upgrade is not in the lock.
        EnvdoctorError: It could not be resolved; the subclass says why.
    """
    with (
        begun(request, settings=settings, talk=talk) as (shop, plan),
        shop.stages.stage("resolve", f"profile {request.profile.name}"),
    ):
        return _relock(request, plan, shop, upgrade)


def _relock(
    request: BuildRequest, plan: BuildPlan, shop: Workshop, upgrade: Sequence[str]
) -> Relocked:
    folder = request.locks or locking.folder_of(request.profile.name)
    path = folder / lockfile.file_name(request.profile.name, shop.interpreter)
    before = _read(path, is_needed=bool(upgrade))
    pinned = _kept(before, upgrade, path)
    found = resolve(plan, shop, pins=pinned).lock
    unsized = [wheel.file for wheel in found.wheels if wheel.size is None]
    if unsized:
        raise IntegrityError(
            f"the source states no size of {', '.join(unsized)}", reference="no-size"
        )
    header = locking.header(request.profile, shop.interpreter)
    _write(path, lockfile.text_of(lockfile.Locked(header=header, lock=found)))
    different = lockfile.differences(before, found)
    return Relocked(path=path, differences=tuple(different))


def _read(path: Path, *, is_needed: bool) -> Lock | None:
    """Return the lock that is there; a broken one is as good as none if it is to be replaced."""
    try:
        found = lockfile.read(path)
    except UserFileError:
        if is_needed:
            raise
        return None
    return found.lock if found else None


def _kept(before: Lock | None, upgrade: Sequence[str], path: Path) -> dict[str, str]:
    """Return the versions that are to stay, by package."""
    if not upgrade:
        return {}
    wheels = before.wheels if before else ()
    moving = {canonicalize_name(name) for name in upgrade}
    unknown = moving - {wheel.name for wheel in wheels}
    if unknown:
        raise UsageError(
            f"--upgrade {', '.join(sorted(unknown))}: not in {path}",
            reference="upgrade-of-nothing",
        )
    # Which torch it is, the profile says.
    return {one.name: one.version for one in wheels if one.name not in {*moving, "torch"}}


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.replace_text(path, text)
    except OSError as error:
        raise UserFileError(
            f"{path}: {error.strerror}",
            reference="lock-not-writable",
            hint="copy the profile to a folder of your own and give its path",
        ) from error
