"""Bring wheels here, look into them, and install them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.errors import IntegrityError
from envdoctor.fetch import fetch
from envdoctor.filesystem import GIGABYTE
from envdoctor.inspection import inspect
from envdoctor.install import install, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.plan import BuildPlan
    from envdoctor.pylock import Lock
    from envdoctor.workshop import Workshop


def installed(lock: Lock, plan: BuildPlan, shop: Workshop) -> tuple[Lock, Path]:
    """Fetch the wheels of a lock, inspect them, and install them into a fresh environment.

    A wheel that was damaged since it was fetched is fetched once more.

    Args:
        lock: What is wanted, and where it was found.
        plan: Further sources, and what it is for.
        shop: Of the build.

    Returns:
        The lock with who served which wheel, and the environment's folder.

    Raises:
        EnvdoctorError: See `fetch`, `inspect` and `install`.
    """
    try:
        return _installed(lock, plan, shop)
    except IntegrityError:
        damaged = shop.wheelhouse.drop_damaged(lock)
        if not damaged:
            raise
    shop.stages.note(f"damaged since they were fetched, fetching anew: {', '.join(damaged)}")
    env = shop.staged / "env"
    if env.exists():
        env.rename(shop.staged / "torn")
    return _installed(lock, plan, shop)


def stocked(lock: Lock, plan: BuildPlan, shop: Workshop) -> Lock:
    """Fetch the wheels of a lock and inspect them; see `installed`."""
    missing = shop.wheelhouse.missing(lock)
    if missing:
        size = shop.wheelhouse.missing_bytes(lock) / GIGABYTE
        with shop.stages.stage("fetch", f"{len(missing)} wheels, {size:.2f} GB"):
            lock = fetch(lock, plan, shop, unpack=unpack)
    else:
        lock = fetch(lock, plan, shop, unpack=unpack)
    with shop.stages.stage("inspect", "collisions of files, the CUDA variant of torch"):
        inspect(lock, plan.profile)
    return lock


def _installed(lock: Lock, plan: BuildPlan, shop: Workshop) -> tuple[Lock, Path]:
    found = stocked(lock, plan, shop)
    with shop.stages.stage("install", f"{len(found.wheels)} packages"):
        return found, install(found, plan.profile, shop)
