"""Decide whose caches are meant: an environment, its variables, envdoctor's home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.caches.surroundings import read_facts
from envdoctor.probes.files import is_folder
from envdoctor.probes.interpreter import checked_prefix, running_prefix
from envdoctor.probes.subject import Subject
from envdoctor.value import keyword_value

if TYPE_CHECKING:
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
        from envdoctor import launch, store  # noqa: PLC0415  for built environments only
        from envdoctor.train_request import TrainRequest  # noqa: PLC0415

        if prefix or profile or store.known_profiles(settings.home):
            request = TrainRequest(config=Path(), env=prefix, profile=profile)
            place = launch.choose(request, settings)
            kept, _ = launch.inherited(settings.variables, place.profile)
            env, variables = place.env, launch.variables_in(place.env, place.profile, kept)
    subject = Subject(prefix=env, variables=variables)
    return Scene(subject=subject, facts=read_facts(subject), home=settings.home)


def _has_torch(env: Path) -> bool:
    return any(is_folder(site / "torch") for site in env.glob("lib/python3*/site-packages"))
