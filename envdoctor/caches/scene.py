"""Decide whose caches are meant: an environment, its variables, envdoctor's home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.caches.surroundings import read_facts
from envdoctor.probes.files import is_folder
from envdoctor.probes.interpreter import checked_prefix, running_prefix
from envdoctor.probes.subject import Subject
from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from envdoctor.facts import FactSet
    from envdoctor.settings import Settings


@keyword_value
class Scene:
    """One environment with what its caches depend on.

    Args:
        subject: The environment and the variables that its processes see.
        facts: What was read of both.
        home: envdoctor's own folder.
    """

    subject: Subject
    facts: FactSet
    home: Path


def scene_of(settings: Settings, *, prefix: Path | None, profile: str | None) -> Scene:
    """Return the scene that options name.

    Without options it is the environment that envdoctor runs in; if that holds no torch, the one
    that was built last.

    Args:
        settings: Where built environments lie, and the variables of this process.
        prefix: An environment's folder.
        profile: The current environment of this profile, or what `prefix` is to be.

    Raises:
        UsageError: What was named does not exist.
        VerificationError: Nothing of the profile is built.
    """
    env, variables = prefix or checked_prefix(running_prefix()), dict(settings.variables)
    is_built = (settings.home / "envs").is_dir()
    if profile or (is_built and (prefix or not _has_torch(env))):
        from envdoctor import store  # noqa: PLC0415  for built environments only

        if prefix or profile or store.known_profiles(settings.home):
            return built_scene(settings, env=prefix, profile=profile)
    return _scene(env, variables, settings)


def built_scene(settings: Settings, *, env: Path | None, profile: str | None) -> Scene:
    """Return the scene of a training: the environment and variables that `train` would take.

    Args:
        settings: Where built environments lie, and the variables of this process.
        env: An environment's folder; None for one that envdoctor built.
        profile: Its profile; None for that of the environment, or the newest one.

    Raises:
        UsageError: What was named does not exist.
        VerificationError: Nothing is built.
    """
    from envdoctor import launch  # noqa: PLC0415  for built environments only
    from envdoctor.train_request import TrainRequest  # noqa: PLC0415

    place = launch.choose(TrainRequest(env=env, profile=profile), settings)
    kept, _ = launch.inherited(settings.variables, place.profile)
    return _scene(place.env, launch.variables_in(place.env, place.profile, kept), settings)


def _scene(env: Path, variables: Mapping[str, str], settings: Settings) -> Scene:
    subject = Subject(prefix=env, variables=variables)
    return Scene(subject=subject, facts=read_facts(subject), home=settings.home)


def _has_torch(env: Path) -> bool:
    return any(is_folder(site / "torch") for site in env.glob("lib/python3*/site-packages"))
