"""Read what a verification of the compile caches finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor import settings
from envdoctor.caches.stamp_places import is_stamped
from envdoctor.facts import CompileCachesFact, EntryClass, FactSet, VerifiedCache
from envdoctor.probes.cache_places import cache_places

if TYPE_CHECKING:
    from envdoctor.caches.survey import Survey
    from envdoctor.probes.subject import Subject


def read_compile_caches(subject: Subject, facts: FactSet) -> CompileCachesFact:
    """Verify the caches that have a stamp, by stat and headers; when deep, all of every one.

    Raises:
        LookupError: Another machine's root is inspected.
    """
    if not subject.is_this_machine:
        raise LookupError("the caches of a mounted root are not verified")
    home = settings.load(subject.variables).home
    places = cache_places(subject, facts)
    if not subject.deep:
        places = [place for place in places if is_stamped(home, place.path)]
    if not places:
        return CompileCachesFact(is_deep=subject.deep)
    # Here: without stamps a check needs none of this, which takes as long to import as all else.
    from envdoctor.caches.surroundings import look  # noqa: PLC0415
    from envdoctor.caches.survey import Manner, survey_all  # noqa: PLC0415

    around = look(subject, facts, home=home, deep=subject.deep)
    manner = Manner(deep=subject.deep, progress=subject.progress)
    found = survey_all(places, around, home=home, manner=manner)
    caches = (_verified(one) for one in found if one.judgements or one.missing)
    return CompileCachesFact(caches=tuple(caches), is_deep=subject.deep)


def _verified(survey: Survey) -> VerifiedCache:
    return VerifiedCache(
        kind=survey.place.kind,
        path=survey.place.path,
        classes=tuple(
            EntryClass(
                name=name,
                num_entries=len(found),
                num_bytes=sum(one.entry.size for one in found),
                example=found[0].entry.path,
                reason=found[0].reason,
            )
            for name in ("valid", "stale", "foreign", "corrupt", "unknown")
            if (found := [one for one in survey.judgements if one.kind == name])
        ),
        num_missing=len(survey.missing),
    )
