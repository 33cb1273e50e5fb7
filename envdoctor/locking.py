"""Take the packages of a build from the profile's lock, where that holds."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from envdoctor import lockfile
from envdoctor.errors import IntegrityError, NoSolutionError, SourceError, UserFileError
from envdoctor.resolve import resolve
from envdoctor.resources import bundled

if TYPE_CHECKING:
    from envdoctor.interpreter import Interpreter
    from envdoctor.lockfile import Locked
    from envdoctor.plan import BuildPlan
    from envdoctor.profile import Profile
    from envdoctor.resolve import Resolution
    from envdoctor.workshop import Workshop


def folder_of(name_or_path: str) -> Path:
    """Return the folder of the locks of a profile: `locks`, beside its file."""
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path).absolute().parent / "locks"
    return bundled("profiles") / "locks"


def digest(profile: Profile) -> str:
    """Return the sha256 of what in a profile decides its packages: not its indexes' addresses."""
    asked = (
        profile.python.requires,
        (profile.torch.version, profile.torch.variant),
        sorted(profile.packages.require),
        sorted(profile.packages.exclude),
        sorted(profile.packages.forbid),
        profile.sources.exclude_newer,
    )
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()


def header(profile: Profile, interpreter: Interpreter) -> lockfile.Header:
    """Return the header of a lock that is made now."""
    return lockfile.Header(
        profile=profile.name,
        profile_sha256=digest(profile),
        python=lockfile.python_tag(interpreter),
        platform=lockfile.platform_tag(interpreter),
    )


def resolved(
    plan: BuildPlan, shop: Workshop, *, folder: Path | None, strict: bool, asked: str = ""
) -> Resolution:
    """Return the packages of a build: those of the lock if it is fresh and some source has them.

    Args:
        plan: Sources, in order.
        shop: Of the build.
        folder: Where the profile's locks lie; None if it has no such place.
        strict: True to refuse everything but the lock.
        asked: The profile as the user named it; empty for its own name.

    Raises:
        UserFileError: The lock is not valid; or, if strict, missing or stale.
        NoSolutionError: See `resolve`; so for the two below.
        SourceError: No source answered.
        IntegrityError: If strict: no source has the locked files.
    """
    name = lockfile.file_name(plan.profile.name, shop.interpreter)
    path = (folder or Path("locks")) / name
    locked = lockfile.read(path) if folder else None
    reason = _unfit(locked, plan.profile, shop.interpreter)
    if reason:
        imported = lockfile.read(shop.wheelhouse.locks / name)
        if not _unfit(imported, plan.profile, shop.interpreter):
            locked, reason = imported, ""
    if strict and (locked is None or reason):
        raise UserFileError(
            f"{path}: {reason}",
            reference="lock-stale" if locked else "lock-missing",
            hint=f"envdoctor lock --profile {shlex.quote(asked or plan.profile.name)}",
        )
    if locked is None or reason:
        if locked:
            shop.stages.note(f"not as {name} says: {reason}; `envdoctor lock` makes it anew")
        return resolve(plan, shop)
    try:
        found = resolve(plan, shop, locked=locked.lock)
    except (IntegrityError, NoSolutionError, SourceError) as error:
        if strict:
            raise
        shop.stages.note(f"not as {name} says, no source has its files: {error.message}")
        return resolve(plan, shop)
    shop.stages.note(f"packages are those of {name}")
    return found


def _unfit(locked: Locked | None, profile: Profile, interpreter: Interpreter) -> str:
    """Return why a lock is not to be used; empty if it is."""
    if locked is None:
        return "there is no such lock"
    wanted = header(profile, interpreter)
    if locked.header.profile_sha256 != wanted.profile_sha256:
        return f"the profile {profile.name} has changed since it was made"
    if locked.header != wanted:
        found = locked.header
        return f"it is for {found.profile}, {found.python} on {found.platform}"
    return ""
