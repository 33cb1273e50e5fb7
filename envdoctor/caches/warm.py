"""Compile what a run needs before it starts, and stamp the caches."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envdoctor import launch
from envdoctor.caches import stamp as stamps
from envdoctor.caches.scene import built_scene
from envdoctor.caches.surroundings import look
from envdoctor.caches.survey import Manner, survey_all
from envdoctor.caches.vouch import forget_lost, stamp_all
from envdoctor.errors import ExitCode
from envdoctor.probes.cache_places import cache_places
from envdoctor.resources import bundled, trainer_module
from envdoctor.train_request import TrainRequest, configuration, require_layout, require_run
from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from envdoctor.caches.fingerprint import Fingerprint
    from envdoctor.caches.survey import Survey
    from envdoctor.settings import Settings
    from envdoctor.talk import Talk

_NOT_COMPILED = ("log", "name")
"""Sections of a run file that change nothing of what is compiled."""


@keyword_value
class Warmed:
    """How warming ended.

    Args:
        name: The run.
        code: Exit code: of the process that compiled, or 0.
        was_warm: True if nothing had to be done.
        report: What `python -m train warm` said; empty if it did not run to its end.
        num_stamped: Entries that are stamped now.
        spoiled: Entries that were stamped and are corrupt now, which a run may stop at.
        roots: Caches that hold something.
    """

    name: str
    code: int = ExitCode.OK
    was_warm: bool = False
    report: dict[str, Any]
    num_stamped: int = 0
    spoiled: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()


def warm(
    training: TrainRequest,
    *,
    settings: Settings,
    talk: Talk,
    progress: Callable[[int, int], None] | None,
) -> Warmed:
    """Compile what a training needs, with the environment and variables that it will have.

    Args:
        training: A run file, what is laid over it, and where it is to run.
        settings: Where built environments lie, and the variables of this process.
        talk: Told which environment is taken.
        progress: Told bytes hashed and bytes in all.

    Raises:
        UserFileError: The run file is not valid, or a file that it names is missing.
        VerificationError: No environment is there, or it does not pass.
    """
    require_run(training)
    scene = built_scene(settings, env=training.env, profile=training.profile)
    require_layout(training, scene.subject.prefix)
    around = look(scene.subject, scene.facts, home=scene.home, deep=False)
    places = cache_places(scene.subject, scene.facts)
    name, digest = needs_of(training)
    before = survey_all(places, around, home=scene.home, manner=Manner())
    if is_warm(before, around.fingerprint, run=(name, digest)):
        return Warmed(name=name, was_warm=True, report={}, roots=_roots(before))
    forget_lost(before, home=scene.home)
    with tempfile.TemporaryDirectory(prefix="envdoctor-warm-") as folder:
        path = Path(folder, "report.json")
        command = _command(training, report=path)
        request = TrainRequest(command=command, env=training.env, profile=training.profile)
        code = launch.train(request, settings=settings, talk=talk)
        if code:
            return Warmed(name=name, code=code, report={})
        report = json.loads(path.read_bytes())
    manner = Manner(deep=True, progress=progress)
    after = survey_all(places, around, home=scene.home, manner=manner)
    spoiled = _spoiled(after)
    runs = {} if spoiled else {name: digest}
    number = stamp_all(after, around.fingerprint, home=scene.home, by="warm", runs=runs)
    return Warmed(
        name=name,
        code=ExitCode.PROBLEM if spoiled else ExitCode.OK,
        report=report,
        num_stamped=number,
        spoiled=spoiled,
        roots=_roots(after),
    )


def is_warm(surveys: Sequence[Survey], fingerprint: Fingerprint, *, run: tuple[str, str]) -> bool:
    """Tell whether caches were warmed for a run, here, and hold all that was stamped then.

    Args:
        surveys: Of all caches.
        fingerprint: Of the environment.
        run: As `needs_of` gives it.
    """
    name, digest = run
    own = [stamps.matching(survey.stamps, fingerprint) for survey in surveys]
    was_warmed = any(stamp is not None and stamp.runs.get(name) == digest for stamp in own)
    lost = any(survey.missing for survey in surveys)
    stamped = {file.path for stamp in own if stamp for file in stamp.files}
    changed = any(
        one.kind != "valid" and any(file.path in stamped for file in one.entry.files)
        for survey in surveys
        for one in survey.judgements
    )
    return was_warmed and not lost and not changed


def _spoiled(surveys: Sequence[Survey]) -> tuple[str, ...]:
    found = []
    for survey in surveys:
        stamped = {file.path for stamp in survey.stamps for file in stamp.files}
        found += [
            f"{survey.root}/{one.entry.path}"
            for one in survey.judgements
            if one.kind == "corrupt" and any(file.path in stamped for file in one.entry.files)
        ]
    return tuple(found)


def _command(training: TrainRequest, *, report: Path) -> tuple[str, ...]:
    changes = [word for change in training.changes for word in ("--set", change)]
    return "warm", "--config", str(training.config), *changes, "--report", str(report)


def needs_of(training: TrainRequest) -> tuple[str, str]:
    """Return a run's name, and a digest of all that decides what it compiles.

    That is the run file with its defaults and what is laid over it, and the trainer's own code.
    """
    loaded = configuration(training)
    settings = trainer_module("config").to_builtins(loaded)
    kept = {key: value for key, value in settings.items() if key not in _NOT_COMPILED}
    state = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    folder = bundled("train")
    for path in sorted(folder.rglob("*.py")):
        state.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return loaded.name, state.hexdigest()


def _roots(surveys: Sequence[Survey]) -> tuple[str, ...]:
    return tuple(survey.root for survey in surveys if survey.judgements)
