"""Work on a profile alone; where it ends without an environment, logged and tidied up after."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from envdoctor import store
from envdoctor.build_lock import held
from envdoctor.filesystem import enough_space
from envdoctor.preparation import prepare
from envdoctor.shell import stoppable
from envdoctor.store import Store
from envdoctor.talk import Stages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.build import BuildRequest
    from envdoctor.plan import BuildPlan
    from envdoctor.settings import Settings
    from envdoctor.talk import Talk
    from envdoctor.workshop import Workshop


@contextmanager
def held_store(request: BuildRequest, *, settings: Settings, stages: Stages) -> Iterator[Store]:
    """Hold the lock of a profile, to be stopped by Ctrl-C and told of a full disk.

    Raises:
        BusyError: A build of the profile runs, and this is not to wait.
        SpaceError: Its folders cannot be made.
    """
    place = Store(settings.home, request.profile.name)
    store.make_folders(place)
    waiting = stages.note if request.wait else None
    what = f"profile {request.profile.name}"
    with (
        stoppable(),
        enough_space(place.home),
        held(place.lock_file, what=what, waiting=waiting),
    ):
        yield place


@contextmanager
def begun(
    request: BuildRequest, *, settings: Settings, talk: Talk
) -> Iterator[tuple[Workshop, BuildPlan]]:
    """Prepare as for a build, with the profile's lock held.

    Raises:
        BusyError: A build of the profile runs, and this is not to wait.
        EnvdoctorError: uv, a fitting Python, or something that the user named is missing.
    """
    stages = Stages(talk)
    with held_store(request, settings=settings, stages=stages) as place:
        store.clean(place)
        try:
            with store.new_log(place).open("w", encoding="utf-8") as log:
                with stages.stage("prepare", "uv, Python and package sources"):
                    prepared = prepare(
                        request, settings=settings, place=place, stages=stages, log=log
                    )
                yield prepared
        finally:
            store.clean(place)
            store.empty_trash(place)
