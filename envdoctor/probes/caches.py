"""Read which caches of compiled kernels there are, whose they are, and what made their entries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from envdoctor.facts import (
    CacheEntry,
    CacheFolder,
    CachesFact,
    DistributionsFact,
    FactSet,
    HostFact,
    PathOwner,
    PathOwnersFact,
    PathStep,
    Unavailable,
)
from envdoctor.probes.cache_access import steps_to
from envdoctor.probes.cache_entries import read_inductor_entries, read_triton_entries
from envdoctor.probes.cache_places import (
    CachePlace,
    headers_place,
    home_folder,
    inductor_place,
    triton_place,
)
from envdoctor.probes.files import is_folder, list_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envdoctor.facts.caches import CacheKind
    from envdoctor.probes.subject import Subject

_NAMING = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME")
_STRAY_CACHES: tuple[tuple[CacheKind, str, str], ...] = (
    ("flashinfer", "FLASHINFER_WORKSPACE_BASE", ".cache/flashinfer"),
    ("vllm", "VLLM_CACHE_ROOT", ".cache/vllm"),
    ("sglang", "", ".cache/sglang"),
    ("tvm-ffi", "", ".cache/tvm-ffi"),
)
"""Caches of serving engines: whose, the variable that moves it, its place below the home folder."""


def read_path_owners(subject: Subject, facts: FactSet) -> PathOwnersFact:
    """Know nothing: owners are looked up where a cache is found."""
    del subject, facts
    return PathOwnersFact()


def read_caches(subject: Subject, facts: FactSet) -> CachesFact:
    """Look at the folders of Triton, Inductor and the serving engines, a bounded part of each."""
    folders = [*_triton(subject, facts), *_inductor(subject, facts), *_strays(subject, facts)]
    triton = facts.need(DistributionsFact).find("triton")
    return CachesFact(
        folders=tuple(folders),
        triton_installed=(triton.installed_at or None) if triton else None,
    )


def _triton(subject: Subject, facts: FactSet) -> Iterator[CacheFolder]:
    """Yield Triton's own cache."""
    if place := triton_place(subject, facts):
        yield _triton_folder(subject, facts, place.path, _variable(place))


def _triton_folder(subject: Subject, facts: FactSet, path: str, variable: str) -> CacheFolder:
    place = subject.locate(path)
    num_entries, entries = read_triton_entries(place)
    return CacheFolder(
        kind="triton",
        path=path,
        variable=variable,
        exists=is_folder(place),
        owner=_owner(subject, facts, path),
        num_entries=num_entries,
        entries=tuple(entries),
        steps=_steps(subject, path),
    )


def _inductor(subject: Subject, facts: FactSet) -> Iterator[CacheFolder]:
    """Yield Inductor's cache, which holds Triton's where TRITON_CACHE_DIR is unset."""
    found = inductor_place(subject, facts)
    if found is None:
        return
    path, variable = found.path, _variable(found)
    place = subject.locate(path)
    entries: list[CacheEntry] = read_inductor_entries(place, facts.need(HostFact).machine)
    yield CacheFolder(
        kind="inductor",
        path=path,
        variable=variable,
        exists=is_folder(place),
        owner=_owner(subject, facts, path),
        entries=tuple(entries),
        steps=_steps(subject, path),
    )
    default = headers_place(subject, facts)
    folder = default.path.rpartition("/")[0] if default else path
    if folder != path:
        there = is_folder(subject.locate(folder))
        steps = _steps(subject, folder)
        yield CacheFolder(kind="headers", path=folder, exists=there, steps=steps)
    if "TRITON_CACHE_DIR" not in subject.variables:
        for device in list_folder(place / "triton"):
            yield _triton_folder(subject, facts, f"{path}/triton/{device}", variable)


def _variable(place: CachePlace) -> str:
    """Return the variable that names a cache; empty where only its parent is named, or nothing."""
    return place.decided_by if place.decided_by in _NAMING else ""


def _steps(subject: Subject, path: str) -> tuple[PathStep, ...]:
    """Return the way to a cache; a mounted root's owners say nothing of who could write."""
    return tuple(steps_to(path)) if subject.is_this_machine else ()


def _strays(subject: Subject, facts: FactSet) -> Iterator[CacheFolder]:
    home = home_folder(subject, facts)
    for kind, variable, default in _STRAY_CACHES:
        named = subject.variables.get(variable, "") if variable else ""
        if named and kind == "flashinfer":
            named = f"{named}/{default}"  # its variable stands in for the home folder
        path = named or ("" if home is None else f"{home}/{default}")
        if path and is_folder(subject.locate(path)):
            yield CacheFolder(kind=kind, path=path, variable=variable if named else "")


def _owner(subject: Subject, facts: FactSet, path: str) -> PathOwner | None:
    """Return who owns a folder, or the nearest one above it that is there."""
    given = facts.get(PathOwnersFact)
    known = () if isinstance(given, Unavailable) else given.owners
    place = subject.locate(path)
    for folder in (place, *place.parents):
        names = {str(folder), subject.shown(folder), path if folder == place else ""}
        if told := next((owner for owner in known if owner.path.rstrip("/") in names), None):
            return told
        try:
            status = folder.stat()
        except OSError:
            continue
        return PathOwner(
            path=path if folder == place else subject.shown(folder),
            # a mounted root's files belong to whoever unpacked it
            uid=status.st_uid if subject.is_this_machine else None,
            mode=status.st_mode & 0o7777,
            is_writable=_is_writable(subject, folder),
        )
    return None


def _is_writable(subject: Subject, folder: Path) -> bool | None:
    """Tell whether files can be made in a folder; None where another machine decides."""
    return os.access(folder, os.W_OK | os.X_OK) if subject.is_this_machine else None
