"""The links `current` and `previous` of a profile's environments, which change together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.durable import sync_folder

if TYPE_CHECKING:
    from pathlib import Path


def linked(envs: Path, link: str) -> str | None:
    """Return the generation that `current` or `previous` means, if it is there."""
    if link == "previous" and (pending := _pending(envs)):
        return pending
    return _target(envs / link)


def make_current(envs: Path, generation: str) -> None:
    """Let `current` mean another generation, in one step; what it meant becomes `previous`.

    The new `previous` lies ready before `current` changes and counts from then on: killed at any
    point, either both have changed or none.
    """
    settle(envs)
    before = linked(envs, "current")
    if before not in {None, generation}:
        _prepare(envs, "previous", str(before))
    _prepare(envs, "current", generation).replace(envs / "current")
    sync_folder(envs)
    settle(envs)


def settle(envs: Path) -> None:
    """Finish, or undo, a change that was cut short; call it with the profile's lock held."""
    if _pending(envs):
        _prepared(envs, "previous").replace(envs / "previous")
        sync_folder(envs)
    for link in ("previous", "current"):
        _prepared(envs, link).unlink(missing_ok=True)


def _pending(envs: Path) -> str | None:
    """Return the generation that is to be `previous`, where `current` has changed already."""
    waiting = _target(_prepared(envs, "previous"))
    return waiting if waiting != _target(envs / "current") else None


def _target(link: Path) -> str | None:
    target = link.resolve()
    is_ours = link.is_symlink() and target.is_dir() and target.parent == link.parent.resolve()
    return target.name if is_ours else None


def _prepare(envs: Path, link: str, generation: str) -> Path:
    temporary = _prepared(envs, link)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(generation)
    return temporary


def _prepared(envs: Path, link: str) -> Path:
    return envs / f".{link}.tmp"
