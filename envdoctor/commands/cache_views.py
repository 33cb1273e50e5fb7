"""What the commands of `envdoctor cache` look at, by their options."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from envdoctor.caches.judge import Surroundings
    from envdoctor.caches.scene import Scene
    from envdoctor.caches.survey import Survey
    from envdoctor.probes.cache_places import CachePlace
    from envdoctor.render import Line


def surveyed(
    python: str | None,
    prefix: Path | None,
    profile: str | None,
    *,
    deep: bool = False,
    every: bool = False,
) -> tuple[Scene, Surroundings, list[Survey]]:
    """Return whose caches are meant, what they are held against, and what they hold."""
    from envdoctor.caches.survey import Manner, survey_all
    from envdoctor.progress import byte_meter

    scene, around, places = looked(python, prefix, profile, deep=deep)
    manner = Manner(deep=deep, every=every, progress=byte_meter("read") if deep else None)
    return scene, around, survey_all(places, around, home=scene.home, manner=manner)


def looked(
    python: str | None, prefix: Path | None, profile: str | None, *, deep: bool = False
) -> tuple[Scene, Surroundings, list[CachePlace]]:
    """Return whose caches are meant, what they are held against, and where they are."""
    from envdoctor import settings
    from envdoctor.caches.scene import scene_of
    from envdoctor.caches.surroundings import look
    from envdoctor.commands.options import chosen_prefix
    from envdoctor.probes.cache_places import cache_places

    given = chosen_prefix(python, prefix) if python is not None or prefix is not None else None
    scene = scene_of(settings.load(), prefix=given, profile=profile)
    around = look(scene.subject, scene.facts, home=scene.home, deep=deep)
    return scene, around, cache_places(scene.subject, scene.facts)


def show_lines(lines: Iterable[Line]) -> None:
    """Write lines to stdout."""
    from envdoctor.render import show

    show(lines)
