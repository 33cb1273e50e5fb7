"""Find the tools and the package sources of a build."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from envdoctor import interpreter, plan, store, uv
from envdoctor.filesystem import is_network
from envdoctor.index_variables import with_variables
from envdoctor.sources import gather
from envdoctor.wheelhouse import Wheelhouse
from envdoctor.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.build import BuildRequest
    from envdoctor.plan import BuildPlan
    from envdoctor.settings import Settings
    from envdoctor.store import Store
    from envdoctor.talk import Stages


def prepare(
    request: BuildRequest, *, settings: Settings, place: Store, stages: Stages, log: IO[str]
) -> tuple[Workshop, BuildPlan]:
    """Return the workshop of a build, and where its packages are to be looked for.

    Raises:
        EnvdoctorError: uv, a fitting Python, or something that the user named is missing.
    """
    variables = settings.variables
    binary = uv.find(request.uv, settings)
    python = interpreter.choose(
        request.python, requires=request.profile.python.requires, variables=variables
    )
    profile = request.profile
    if not request.offline:
        profile = with_variables(profile, variables)
    staged, house = store.new_staging(place), Wheelhouse(place.wheels)
    found = gather(
        profile,
        wheels=request.wheels,
        variables=variables,
        offline_index=house.write_index(staged / "wheelhouse") if request.offline else "",
    )
    for note in found.notes:
        stages.note(note)
    if is_network(place.home):
        stages.note(f"{place.home} is on a network file system: expect a slow build")
    if found.pip.cert and found.pip.cert != variables.get("SSL_CERT_FILE"):
        stages.note(f"pip trusts cert = {found.pip.cert}: passing it on to uv as SSL_CERT_FILE")
    if not _may_link(place) and request.profile.build.link_mode != "copy":
        stages.note(
            f"uv's cache {place.cache} is on another file system: files will be copied, not linked"
        )
    shop = Workshop(
        uv=binary,
        interpreter=python,
        variables={
            **uv.variables(settings, cache=place.cache, pip=found.pip),
            **({"UV_OFFLINE": "1"} if request.offline else {}),
        },
        staged=staged,
        wheelhouse=house,
        log=log,
        stages=stages,
    )
    return shop, plan.make(profile, found)


def _may_link(place: Store) -> bool:
    """Tell whether files of uv's cache can be linked into environments."""
    return place.cache.stat().st_dev == place.staging.stat().st_dev


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Make files as wheels say, whatever the user's mask: equal builds are to be equal."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
