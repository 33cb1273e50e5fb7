"""Turn what compile caches hold into JSON-able data."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

from envdoctor.caches.entries import COUNTED
from envdoctor.caches.judge import CLASSES, EntryClass, Judgement, Surroundings
from envdoctor.formats.printable import encodable_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envdoctor.caches.scene import Scene
    from envdoctor.caches.survey import Survey
    from envdoctor.facts import PathStep

SCHEMA_VERSION = 1
_EXAMPLES = 3


def to_data(
    scene: Scene, around: Surroundings, surveys: Sequence[Survey], *, entries: bool = False
) -> dict[str, Any]:
    """Return what was found as JSON-able data.

    Args:
        scene: Whose caches they are.
        around: What they were held against.
        surveys: What each holds.
        entries: True to list every entry with what it was built for.
    """
    from msgspec import to_builtins  # noqa: PLC0415  40 ms that lines do not need

    data: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "prefix": str(scene.subject.prefix),
        "fingerprint": to_builtins(around.fingerprint),
        "caches": [_cache_data(survey, around, entries=entries) for survey in surveys],
        "totals": {
            name: _totals([one for survey in surveys for one in of_class(survey, name)])
            for name in CLASSES
        },
    }
    found: dict[str, Any] = encodable_data(data)
    return found


def of_class(survey: Survey, name: EntryClass) -> list[Judgement]:
    """Return the entries of one class."""
    return [one for one in survey.judgements if one.kind == name]


def made_for(survey: Survey, one: Judgement, around: Surroundings) -> dict[str, str]:
    """Return what an entry says it was built for."""
    found: dict[str, str] = {}
    reading = survey.readings.get(one.entry.path)
    for said in reading.sayings if reading else ():
        mark = around.marks.get(said.torch, "").removeprefix("torch ")
        parts = {
            "torch": mark or (f"unknown build {said.torch[:8]}" if said.torch else ""),
            "triton": said.triton,
            "gpu": said.device,
            "arch": f"sm_{said.arch}" if said.arch else "",
            "machine": said.machine,
            "python": said.python,
        }
        found |= {key: value for key, value in parts.items() if value}
    return found


def last_step(survey: Survey) -> PathStep | None:
    """Return the cache's folder, or the nearest one above it that is there."""
    folders = [step for step in survey.steps if not step.target]
    return folders[-1] if folders else None


def _cache_data(survey: Survey, around: Surroundings, *, entries: bool) -> dict[str, Any]:
    step = last_step(survey)
    counted = [one for one in survey.judgements if one.entry.kind in COUNTED]
    times = [file.mtime_ns / 1e9 for one in counted for file in one.entry.files]
    data: dict[str, Any] = {
        "kind": survey.place.kind,
        "path": survey.place.path,
        "root": survey.root,
        "decided_by": survey.place.decided_by,
        "disabled_by": survey.place.disabled_by or None,
        "exists": survey.exists,
        "filesystem": survey.filesystem or None,
        "free_bytes": survey.free_bytes,
        "owner_uid": step.uid if step else None,
        "mode": f"{stat.S_IMODE(step.mode):04o}" if step else None,
        "entries": len(counted),
        "files": sum(len(one.entry.files) for one in counted),
        "size_bytes": sum(one.entry.size for one in counted),
        "oldest": min(times, default=None),
        "newest": max(times, default=None),
        "locks": {"files": survey.locks[0], "held": survey.locks[1]},
        "classes": {name: _totals(of_class(survey, name)) for name in CLASSES},
        "missing": list(survey.missing),
        "weak_spots": [
            {"path": spot.path, "message": spot.message, "remedy": spot.remedy or None}
            for spot in survey.weak_spots
        ],
        "unread": list(survey.unread),
    }
    if entries:
        data["all_entries"] = [_entry_data(survey, one, around) for one in survey.judgements]
    return data


def _entry_data(survey: Survey, one: Judgement, around: Surroundings) -> dict[str, Any]:
    return {
        "path": one.entry.path,
        "kind": one.entry.kind,
        "class": one.kind,
        "reason": one.reason or None,
        "bytes": one.entry.size,
        "files": [file.path for file in one.entry.files],
        "made_for": made_for(survey, one, around),
    }


def _totals(items: Sequence[Judgement]) -> dict[str, Any]:
    return {
        "entries": len(items),
        "bytes": sum(one.entry.size for one in items),
        "examples": [
            {"path": one.entry.path, "reason": one.reason or None} for one in items[:_EXAMPLES]
        ],
    }
