"""Where packages can come from on this machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envdoctor import pip_config
from envdoctor.errors import UsageError
from envdoctor.pip_config import PipConfig
from envdoctor.reach import unreachable
from envdoctor.urls import local_path, origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from envdoctor.profile import Profile

_EMPTY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Package sources, after each was tried.

    Args:
        wheels: Existing folders of wheels, first those that the user named.
        pip: pip's settings, without the sources that do not answer.
        dead: Sources that do not answer, each with the reason.
        notes: What was left out, to be said to the user.
        offline_index: Address of the wheelhouse as an index, where nothing else is to be asked.
    """

    wheels: tuple[Path, ...] = ()
    pip: PipConfig = field(default_factory=PipConfig)
    dead: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    offline_index: str = ""


def gather(
    profile: Profile,
    *,
    wheels: Sequence[Path] = (),
    variables: Mapping[str, str] = _EMPTY,
    offline_index: str = "",
) -> Sources:
    """Collect the sources of a profile and try each.

    Args:
        profile: Names indexes and folders of wheels.
        wheels: Folders that the user named for this build.
        variables: Environment variables for pip.
        offline_index: Address of the wheelhouse as an index, if no network is to be asked.

    Raises:
        UsageError: A folder that the user named, or a constraint file of pip, does not exist.
    """
    for folder in wheels:
        if not folder.is_dir():
            raise UsageError(f"--wheels {folder}: no such folder", reference="no-wheel-folder")
    pip, notes = _pip(profile, variables)
    _require_constraints(pip)
    asked = [index.url for index in profile.index if index.url]
    asked += [*profile.sources.wheelhouse, *_locations(pip)]
    far = [one for one in asked if offline_index and local_path(one) is None]
    dead = {
        **unreachable([one for one in asked if one not in far], pip=pip),
        **{one: f"{origin(one)} is not asked: offline" for one in far},
    }
    dead.update(
        (one, f"{path} is no folder")
        for one in profile.sources.wheelhouse
        if one not in dead and (path := local_path(one)) and not path.is_dir()
    )
    folders = [
        path for one in profile.sources.wheelhouse if one not in dead if (path := local_path(one))
    ]
    return Sources(
        wheels=tuple(folder.absolute() for folder in (*wheels, *folders)),
        pip=_alive(pip, dead),
        dead=dead,
        notes=(*notes, *_left_out(profile, pip, dead)),
        offline_index=offline_index,
    )


def _pip(profile: Profile, variables: Mapping[str, str]) -> tuple[PipConfig, tuple[str, ...]]:
    if profile.sources.pip_config == "ignore":
        return PipConfig(), ()
    found = pip_config.read(variables)
    if found is None:
        return PipConfig(), ("no Python within reach has pip: its configuration is not known",)
    return found, ()


def _require_constraints(pip: PipConfig) -> None:
    """Refuse to build without a constraint that somebody wanted to hold, as pip does."""
    for one in pip.constraints:
        path = local_path(one)
        if path is not None and not path.is_file():
            raise UsageError(
                f"pip is configured with the constraint file {one}, which does not exist",
                reference="no-constraint-file",
                hint="correct pip's configuration, or set PIP_CONSTRAINT= for this build",
            )


def _left_out(profile: Profile, pip: PipConfig, dead: Mapping[str, str]) -> Iterator[str]:
    yield from (f"left out pip's {dead[one]}" for one in _locations(pip) if one in dead)
    for folder in profile.sources.wheelhouse:
        if folder in dead:
            yield f"left out a wheel folder of the profile: {dead[folder]}"


def _locations(pip: PipConfig) -> list[str]:
    first = [pip.index_url] if pip.index_url and not pip.no_index else []
    return [*first, *(() if pip.no_index else pip.extra_index_urls), *pip.find_links]


def _alive(pip: PipConfig, dead: Mapping[str, str]) -> PipConfig:
    """Take out what does not answer: pip passes over it, uv would stop."""
    return replace(
        pip,
        extra_index_urls=tuple(one for one in pip.extra_index_urls if one not in dead),
        find_links=tuple(one for one in pip.find_links if one not in dead),
    )
