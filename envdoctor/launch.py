"""Run the trainer in a built environment that passes its checks."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envdoctor import profile as profiles
from envdoctor import receipt, shell, store
from envdoctor.diagnose import diagnose
from envdoctor.errors import ToolError, UsageError, VerificationError
from envdoctor.probes.interpreter import checked_prefix
from envdoctor.profile import VariablesSection
from envdoctor.resources import bundled, trainer_module
from envdoctor.seals import seal_of
from envdoctor.store import Store
from envdoctor.talk import Event, EventKind
from envdoctor.train_request import require_layout, require_valid
from envdoctor.verify import UnfitEnvironmentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from envdoctor.profile import Profile
    from envdoctor.settings import Settings
    from envdoctor.talk import Talk
    from envdoctor.train_request import TrainRequest

_DEPTH = 2  # PROFILE/GENERATION
_OF_OTHER_ENVIRONMENTS = ("CONDA_DEFAULT_ENV", "CONDA_PREFIX", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An environment to run in.

    Args:
        env: Its real folder: a rebuild changes what `current` means, not what lies here.
        profile: What it is to be; None if nobody said.
        store: Where it was built; None for an environment from elsewhere.
        origin: Why this one, in words.
    """

    env: Path
    profile: Profile | None
    store: Store | None
    origin: str


def train(request: TrainRequest, *, settings: Settings, talk: Talk) -> int:
    """Check the run file and the environment, then train, or run a sub-command of the trainer.

    Args:
        request: What to run.
        settings: Where environments lie, and the variables of this process.
        talk: Told which environment is taken.

    Returns:
        The trainer's exit code.

    Raises:
        UserFileError: The run file is not valid, or a file that it names is missing.
        UsageError: The environment, profile or sub-command that was named does not exist.
        VerificationError: No environment is there, or it does not pass; then it is an
            `UnfitEnvironmentError` with the report.
    """
    require_valid(request)
    if {"-h", "--help"} & set(request.command) or request.command[:1] in talkers():
        return explain(request.command, settings)
    place = choose(request, settings)
    if not request.command:
        require_layout(request, place.env)
    talk(Event(kind=EventKind.NOTE, text=f"environment: {place.env} ({place.origin})"))
    kept, dropped = inherited(settings.variables, place.profile)
    if dropped:
        talk(Event(kind=EventKind.NOTE, text=f"not passed on: {', '.join(dropped)}"))
    command = [*argv(place.env, request), *noted(place, request)]
    if place.store is None:
        require_fit(place, kept)
        return shell.supervise(command, env=variables(place, kept))
    # The trainer holds the descriptor as well, so that the environment stays even if we are killed.
    with store.lease(place.store, place.env.name) as descriptor:
        require_fit(place, kept)
        return shell.supervise(command, env=variables(place, kept), keep=[descriptor])


def talkers() -> list[tuple[str, ...]]:
    """Return the sub-commands that only print something about the trainer."""
    return [(name,) for name in trainer_module("commands").TALKERS]


def explain(command: Sequence[str], settings: Settings) -> int:
    """Let a sub-command print what takes no environment, as its help.

    Returns:
        Its exit code.
    """
    program = [sys.executable, "-m", "train", *command]
    return shell.supervise(program, env={**settings.variables, **_way_to_trainer()})


def choose(request: TrainRequest, settings: Settings) -> Place:
    """Return the environment that a request means.

    Raises:
        UsageError: What was named does not exist.
        VerificationError: Nothing is built yet.
    """
    wanted = profiles.load_profile(request.profile) if request.profile else None
    if request.env is not None:
        return _given(request.env, wanted, settings)
    name = wanted.name if wanted else next(iter(store.known_profiles(settings.home)), None)
    place = Store(settings.home, name) if name else None
    generation = place.linked("current") if place else None
    if place is None or generation is None:
        command = f"envdoctor build --profile {shlex.quote(request.profile or 'cpu')}"
        raise VerificationError(
            f"no environment of profile {request.profile} is built"
            if request.profile
            else f"no environment is built in {settings.home}",
            reference="no-environment-built",
            hint=f"build one: {command}",
        )
    wanted = wanted or _profile_of(place, generation)
    origin = f"profile {name}" if request.profile else f"profile {name}, the newest that was built"
    return Place(
        env=(place.envs / generation).resolve(), profile=wanted, store=place, origin=origin
    )


def require_fit(place: Place, inherited_variables: Mapping[str, str]) -> None:
    """Refuse an environment that does not pass its checks.

    Raises:
        UnfitEnvironmentError: It does not; carries the report.
    """
    report = diagnose(place.env, profile=place.profile, variables=inherited_variables)
    if report.exit_code:
        raise UnfitEnvironmentError(
            f"{place.env} does not pass its checks: no training in it",
            reference="environment-unfit",
            report=report,
        )


def argv(env: Path, request: TrainRequest) -> list[str]:
    """Return the command line of the trainer.

    Raises:
        ToolError: The environment has no interpreter.
    """
    python = env / "bin/python"
    if not python.is_file():
        raise ToolError(f"{python}: no such interpreter", reference="python-not-found")
    if request.command:
        return [str(python), "-m", "train", *request.command]
    given = {"--config": request.config, "--resume": request.resume, "--out": request.out}
    options = [text for name, path in given.items() if path for text in (name, str(path))]
    options += [f"--set={change}" for change in request.changes]
    return [str(python), "-m", "train", *options, *request.extra]


def noted(place: Place, request: TrainRequest) -> list[str]:
    """Return the arguments by which a training's checkpoints name the environment's receipt."""
    if request.command or place.store is None:
        return []
    found = receipt.read(place.store.receipt(place.env.name))
    return ["--receipt", found.id] if found else []


def inherited(
    present: Mapping[str, str], profile: Profile | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables that reach the trainer, and the names of those that are dropped."""
    forbidden = (profile.env if profile else VariablesSection()).forbid
    dropped = tuple(name for name in forbidden if name in present)
    hidden = {*dropped, *_OF_OTHER_ENVIRONMENTS}
    return {name: value for name, value in present.items() if name not in hidden}, dropped


def variables(place: Place, kept: Mapping[str, str]) -> dict[str, str]:
    """Return the trainer's variables: those kept, the profile's, and the way to `train`."""
    return {**variables_in(place.env, place.profile, kept), **_way_to_trainer()}


def _way_to_trainer() -> dict[str, str]:
    return {
        "PYTHONPATH": str(bundled("train").parent),
        # Without it the folder in which the user stands comes first in the search for modules.
        "PYTHONSAFEPATH": "1",
    }


def variables_in(env: Path, profile: Profile | None, kept: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a program that runs in an environment."""
    return {
        **kept,
        **(profile.env.set if profile else {}),
        "PATH": f"{env / 'bin'}:{kept.get('PATH', '/usr/bin:/bin')}",
        "PYTHONNOUSERSITE": "1",
        "VIRTUAL_ENV": str(env),
    }


def _given(env: Path, wanted: Profile | None, settings: Settings) -> Place:
    path = checked_prefix(env).resolve()
    if not (path / "bin/python").is_file():
        raise UsageError(
            f"--env {env}: there is no bin/python in it",
            reference="python-not-found",
            hint="give the folder of a virtual environment, or build one: envdoctor build",
        )
    built = settings.home.resolve() / "envs"
    if path.is_relative_to(built) and len(path.relative_to(built).parts) == _DEPTH:
        place = Store(settings.home, path.parent.name)
        profile = wanted or _profile_of(place, path.name)
        return Place(env=path, profile=profile, store=place, origin="--env")
    taken = seal_of(path, settings.home).read_receipt()
    if taken is None:
        return Place(env=path, profile=wanted, store=None, origin="--env")
    origin = f"--env, adopted {taken.finished}"
    return Place(env=path, profile=wanted or taken.wanted(), store=None, origin=origin)


def _profile_of(place: Store, generation: str) -> Profile | None:
    found = receipt.read(place.receipt(generation))
    return found.wanted() if found else None
