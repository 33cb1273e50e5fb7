"""Checks of what a verification of the compile caches found."""

from __future__ import annotations

from envdoctor.check import check, problems
from envdoctor.facts import CachesFact, CompileCachesFact, EntryClass, VerifiedCache
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict

_WRONG = ("corrupt", "stale", "foreign")


@check()
def compile_cache_not_valid(caches: CompileCachesFact, sampled: CachesFact | None) -> Verdict:
    """A compile cache holds entries that this environment cannot use, or has lost some.

    ## What it checks
    Every entry of the caches that `envdoctor cache warm`, `import` or `verify --stamp` vouched for,
    by size, time and headers; with --deep every byte of all caches. Corrupt entries, stale ones,
    those for another environment, and stamped ones that are gone. Nothing is unpickled or loaded.

    ## Why it matters
    A corrupt shared object stops the run; all others are compiled anew, in the middle of it, and
    take space.

    ## Remedy
    Remove what is wrong with `envdoctor cache prune`; `envdoctor cache warm` compiles it again
    before a run starts.

    ## Source
    torch/_inductor/codecache.py and triton/runtime/cache.py, read 2026-11-29; broken entries tried
    with torch 2.13.0 and 2.15.0.
    """
    told = {
        folder.path: sum(bool(entry.error) for entry in folder.entries)
        for folder in (sampled.folders if sampled else ())
    }
    found = [
        problem
        for cache in caches.caches
        if (problem := _problem(cache, caches, num_told=told.get(cache.path, 0)))
    ]
    return problems(found, Ok(_verified(caches)))


def _verified(caches: CompileCachesFact) -> str:
    """Say what is valid, and who tells of the rest."""
    classes = [one for cache in caches.caches for one in cache.classes]
    valid, corrupt = (
        sum(one.num_entries for one in classes if one.name == name) for name in ("valid", "corrupt")
    )
    told = f"; {corrupt} corrupt, which damaged-cache-entry names" if corrupt else ""
    return f"{valid} entries are valid{told}" if valid or corrupt else "nothing was verified"


def _problem(cache: VerifiedCache, fact: CompileCachesFact, *, num_told: int) -> Problem | None:
    wrong = [
        one
        for name in _WRONG
        for one in cache.classes
        # what `damaged-cache-entry` names already is not told twice
        if one.name == name and not (name == "corrupt" and one.num_entries <= num_told)
    ]
    if not (wrong or cache.num_missing):
        return None
    told = [f"{one.num_entries} {one.name}" for one in wrong]
    told += [f"{cache.num_missing} that were stamped are gone"] if cache.num_missing else []
    first = f": {_words(wrong[0])}" if wrong else ""
    deep = " --deep" if fact.is_deep else ""
    named = [one.name for one in wrong]
    return Problem(
        culprit=cache.path,
        severity=_severity(named, cache),
        message=f"{cache.kind} cache {cache.path}: {', '.join(told)}{first}",
        evidence=tuple(
            Evidence(subject=f"{cache.path}/{one.example}", expected="valid", found=_words(one))
            for one in wrong
        ),
        remedy=Remedy(
            kind="clear-cache",
            text="Remove what is wrong; warm the cache before the next run."
            if named
            else "Warm the cache before the next run.",
            commands=(f"envdoctor cache prune{deep}",) if "corrupt" in named else (),
        ),
    )


def _severity(named: list[str], cache: VerifiedCache) -> Severity:
    """Entries of another environment do no harm; what is lost or damaged costs time or the run."""
    if "corrupt" in named or cache.num_missing:
        return Severity.WARNING
    return Severity.INFO


def _words(one: EntryClass) -> str:
    return f"{one.example}: {one.reason}"
