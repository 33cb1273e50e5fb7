"""Turn what compile caches hold into lines for people."""

from __future__ import annotations

import stat
import time
from typing import TYPE_CHECKING

from envdoctor.caches.entries import COUNTED
from envdoctor.caches.judge import CLASSES, EntryClass, Judgement, Surroundings
from envdoctor.formats.cache_data import last_step, made_for, of_class
from envdoctor.render import Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from envdoctor.caches.archive import Manifest
    from envdoctor.caches.move import Imported
    from envdoctor.caches.prune import Pruned
    from envdoctor.caches.scene import Scene
    from envdoctor.caches.survey import Survey
    from envdoctor.caches.warm import Warmed

_EXAMPLES = 3
_STYLES: dict[EntryClass, str] = {
    "valid": "green",
    "stale": "yellow",
    "foreign": "yellow",
    "corrupt": "bold red",
    "unknown": "",
}
_UNITS = ("bytes", "kB", "MB", "GB", "TB")
_KILO = 1000
_DAY = 86_400


def status_lines(
    scene: Scene, around: Surroundings, surveys: Sequence[Survey], *, verbose: bool
) -> Iterator[Line]:
    """Yield where each cache is and what it holds."""
    yield from _heading(scene, around)
    for survey in surveys:
        yield Line("")
        yield Line(f"{survey.place.kind:<11}{survey.place.path}", "bold")
        yield from (Line(f"  {text}") for text in _state(survey, around))
        yield from (Line(f"  ! {spot.message}", "bold red") for spot in survey.weak_spots)
        yield from (Line(f"  not read: {text}", "yellow") for text in survey.unread)
        if verbose:
            for one in survey.judgements:
                made = made_for(survey, one, around)
                words = ", ".join(f"{key} {value}" for key, value in made.items())
                yield Line(
                    f"    {one.entry.kind:<9} {_size(one.entry.size):>9}  {one.entry.path}"
                    f"{'  ' + words if words else ''}"
                )


def verify_lines(
    scene: Scene, around: Surroundings, surveys: Sequence[Survey], *, deep: bool
) -> Iterator[Line]:
    """Yield how many entries of each class there are, with examples, and one closing line."""
    yield from _heading(scene, around)
    for survey in surveys:
        if not (survey.judgements or survey.missing or survey.weak_spots or survey.unread):
            continue
        yield Line("")
        yield Line(f"{survey.place.kind:<11}{survey.place.path}", "bold")
        for name in CLASSES:
            yield from _class_lines(name, of_class(survey, name))
        if survey.missing:
            yield Line(f"  missing   {len(survey.missing)} entries that were stamped", "bold red")
            yield from (Line(f"    {path}") for path in survey.missing[:_EXAMPLES])
        for spot in survey.weak_spots:
            yield Line(f"  ! {spot.message}", "bold red")
            if spot.remedy:
                yield Line(f"    {spot.remedy}")
        yield from (Line(f"  not read: {text}", "yellow") for text in survey.unread)
    yield Line("")
    yield _closing(surveys, deep=deep)


def entry_lines(items: Iterable[tuple[Survey, Judgement]]) -> Iterator[Line]:
    """Yield each file of entries by its exact path, under the entry's class and reason."""
    for survey, one in items:
        yield Line(f"{one.kind:<8} {_size(one.entry.size):>9}  {one.reason}", _STYLES[one.kind])
        yield from (Line(f"    {survey.root}/{file.path}") for file in one.entry.files)


def pruned_lines(done: Pruned) -> Iterator[Line]:
    """Yield what became of files that were to be removed."""
    yield from (Line(f"left  {path}: {reason}", "yellow") for path, reason in done.left)
    yield Line(f"removed {len(done.removed)} files, {_size(done.num_bytes)}")


def exported_lines(manifest: Manifest, target: Path) -> Iterator[Line]:
    """Yield what was written into a file."""
    size = _size(sum(file.size for file in manifest.files))
    stamped = sum(file.is_stamped for file in manifest.files)
    yield Line(
        f"{target}: {len(manifest.files)} files, {size} ({_size(target.stat().st_size)} packed), "
        f"{stamped} of them stamped"
    )


def imported_lines(done: Imported) -> Iterator[Line]:
    """Yield what an import did."""
    yield Line(
        f"{done.num_new} files put into {' and '.join(done.roots)}, {done.num_present} were there; "
        f"{done.num_stamped} are stamped"
    )


def warmed_lines(done: Warmed) -> Iterator[Line]:
    """Yield what warming did; nothing if the process that compiled failed and said why."""
    where = " and ".join(done.roots) or "no cache"
    if done.was_warm:
        yield Line(f"{done.name} is warm already: nothing to do; what was stamped is in {where}")
    elif done.report and not done.report["num_shapes"]:
        yield Line(f"{done.name} compiles nothing here; {done.num_stamped} entries stamped")
    elif done.report:
        compiled = done.report["compiled"]
        yield Line(
            f"{done.name}: {compiled['num_new']} compiled, {compiled['num_kernels_cached']} from "
            f"the cache; {done.num_stamped} entries stamped in {where}"
        )
    if done.spoiled:
        yield Line(
            f"corrupt, and not compiled anew: {_plural(len(done.spoiled))}, such as "
            f"{done.spoiled[0]}; remove with `envdoctor cache prune --deep`, then warm again",
            "bold red",
        )


def is_in_order(survey: Survey) -> bool:
    """Tell whether all was looked at, and nothing is corrupt, gone or open to others."""
    is_known = not (survey.missing or survey.unread)
    return is_known and not (of_class(survey, "corrupt") or survey.weak_spots)


def _heading(scene: Scene, around: Surroundings) -> Iterator[Line]:
    here = around.fingerprint
    gpus = ", ".join(here.gpus) or "no GPU"
    triton = f", Triton {here.triton}" if here.triton else ""
    torch = f"torch {here.torch}" if here.torch else "no torch"
    yield Line(f"environment  {scene.subject.prefix}")
    yield Line(f"compiles by  {torch}{triton}, Python {here.python}, {here.machine}, {gpus}")


def _state(survey: Survey, around: Surroundings) -> Iterator[str]:
    place = survey.place
    yield f"decided by {place.decided_by}" + (
        f"; not used: {place.disabled_by}" if place.disabled_by else ""
    )
    if survey.root != place.path:
        yield f"is {survey.root}"
    step = last_step(survey)
    owner = f"uid {step.uid}, mode {stat.S_IMODE(step.mode):04o}" if step else "?"
    free = f"{survey.filesystem or 'unknown file system'}, {_size(survey.free_bytes)} free"
    if not survey.exists:
        nearest = step.path if step else "/"
        yield f"not there yet; {nearest}: {owner}; {free}"
        return
    entries = [one.entry for one in survey.judgements if one.entry.kind in COUNTED]
    yield f"{owner}; {free}"
    held = f", {survey.locks[1]} held" if survey.locks[1] else ""
    num_files = sum(len(entry.files) for entry in entries)
    size = _size(sum(entry.size for entry in entries))
    yield f"{len(entries)} entries, {num_files} files, {size}; {survey.locks[0]} lock files{held}"
    times = [file.mtime_ns for entry in entries for file in entry.files]
    if times:
        ages = [_age(around.now_ns - moment) for moment in (min(times), max(times))]
        yield f"oldest {ages[0]}, newest {ages[1]}"
    for made, (count, total) in _kinds(survey, around).items():
        yield f"{count:>6} {made}, {_size(total)}"


def _kinds(survey: Survey, around: Surroundings) -> dict[str, tuple[int, int]]:
    """Return number and bytes of entries by what they are and what they were built for."""
    found: dict[str, tuple[int, int]] = {}
    for one in survey.judgements:
        made = made_for(survey, one, around)
        words = ", ".join(f"{key} {value}" for key, value in made.items())
        key = f"{one.entry.kind} ({words})" if words else one.entry.kind
        count, total = found.get(key, (0, 0))
        found[key] = count + 1, total + one.entry.size
    return found


def _class_lines(name: EntryClass, items: Sequence[Judgement]) -> Iterator[Line]:
    if not items:
        return
    size = _size(sum(one.entry.size for one in items))
    yield Line(f"  {name:<9} {_plural(len(items))}, {size}", _STYLES[name])
    if name != "valid":
        reasons = {one.reason: one for one in reversed(items)}
        for one in [*reasons.values()][-_EXAMPLES:]:
            yield Line(f"    {one.entry.path}: {one.reason}")


def _closing(surveys: Sequence[Survey], *, deep: bool) -> Line:
    counts = {name: sum(len(of_class(one, name)) for one in surveys) for name in CLASSES}
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    how = "every byte read" if deep else "by size, time and headers; --deep reads every byte"
    missing = sum(len(survey.missing) for survey in surveys)
    if missing:
        said += f"{', ' if said else ''}{missing} missing"
    is_fine = all(map(is_in_order, surveys))
    return Line(f"{said or 'no compile cache holds anything'} ({how})", "" if is_fine else "bold")


def _plural(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


def _size(num_bytes: int) -> str:
    value, power = float(num_bytes), 0
    while value >= _KILO and power < len(_UNITS) - 1:
        value, power = value / _KILO, power + 1
    return f"{value:.0f} {_UNITS[power]}" if not power else f"{value:.1f} {_UNITS[power]}"


def _age(nanoseconds: int) -> str:
    seconds = max(nanoseconds // 10**9, 0)
    if seconds >= _DAY:
        return f"{seconds // _DAY} days ago"
    return time.strftime("%H:%M:%S ago", time.gmtime(seconds))
