"""Find paths that several distributions recorded, and whose contents are on disk."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from typing import TYPE_CHECKING

from envdoctor.facts import SharedFile, SharedPaths
from envdoctor.probes.digests import Task, can_check
from envdoctor.probes.record import is_library
from envdoctor.value import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from envdoctor.probes.record import Row

    Mismatches = Mapping[tuple[str, str], str]

_MAX_EXAMPLES = 5
_MAX_UNASKED = 16
_MAX_UNASKED_BYTES = 4 * 1024 * 1024


@value
class Claim:
    """One distribution's record of a path that others recorded too."""

    owner: str
    digest: str
    size: int | None


Claims = dict[str, tuple[Claim, ...]]
"""By absolute path, in the order of the records."""


def find_claims(records: Sequence[tuple[str, str, Sequence[Row]]]) -> Claims:
    """Return who recorded each path that distributions of different names recorded.

    Args:
        records: Name, package folder and rows of each distribution.
    """
    paths = [{row[0] for row in rows} for _, _, rows in records]
    seen: dict[str, set[str]] = defaultdict(set)
    twice: dict[str, set[str]] = defaultdict(set)
    for (_, site, _), own in zip(records, paths, strict=True):
        twice[site] |= seen[site] & own
        seen[site] |= own
    claims: dict[str, dict[str, Claim]] = defaultdict(dict)
    for (name, site, rows), own in zip(records, paths, strict=True):
        if not twice[site].isdisjoint(own):
            for path, digest, size in [row for row in rows if row[0] in twice[site]]:
                place = os.path.normpath(f"{site}/{path}")
                claims[place].setdefault(name, Claim(name, digest, size))
    # A name that is installed twice shares its paths with itself; another check speaks of that.
    return {place: tuple(each.values()) for place, each in claims.items() if len(each) > 1}


def is_conflict(claims: Sequence[Claim]) -> bool:
    """Tell whether owners recorded different contents for one path."""
    return len({(claim.digest, claim.size) for claim in claims}) > 1


def undecided(claims: Claims, *, deep: bool) -> list[Task]:
    """Return what has to be hashed to tell whose contents are on disk where sizes do not tell.

    Args:
        claims: Of all shared paths.
        deep: True for all of them, False for a few small files.
    """
    tasks = [
        Task(place, claim.digest, claim.size)
        for place, owners in claims.items()
        if is_conflict(owners)
        for claim in owners
        if claim.size is not None and can_check(claim.digest) and _size_of(place) == claim.size
    ]
    if deep:
        return tasks
    small = (task for task in tasks if task.size <= _MAX_UNASKED_BYTES)
    return sorted(small, key=lambda task: task.size)[:_MAX_UNASKED]


def group(claims: Claims, found: Mismatches, wanted: Callable[[str], bool]) -> list[SharedPaths]:
    """Summarise shared paths by their owners.

    Args:
        claims: Of all shared paths.
        found: What hashing gave, for those of `undecided` that are not as recorded.
        wanted: Tells whether an owner matters; paths of which none does are left out.
    """
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for place, owners in claims.items():
        names = tuple(claim.owner for claim in owners)
        if any(map(wanted, names)):
            groups[names].append(place)
    return [_summary(names, places, claims, found) for names, places in groups.items()]


def _summary(
    names: tuple[str, ...], places: list[str], claims: Claims, found: Mismatches
) -> SharedPaths:
    conflicting = [place for place in places if is_conflict(claims[place])]
    conflicting.sort(key=lambda place: (not is_library(place), place))
    holds = [tuple(_holds(place, claims[place], found)) for place in conflicting]
    return SharedPaths(
        owners=names,
        num_paths=sum(
            place in conflicting or not place.endswith("/__init__.py") for place in places
        ),
        num_conflicting=len(conflicting),
        on_disk=tuple(sum(column) for column in zip(*holds, strict=True)),
        examples=tuple(
            SharedFile(
                path=place,
                expected=tuple(_expected(claim, claims[place]) for claim in claims[place]),
                found=_found(place, found),
            )
            for place in conflicting[:_MAX_EXAMPLES]
        ),
    )


def _holds(place: str, owners: Sequence[Claim], found: Mismatches) -> Iterator[bool]:
    size = _size_of(place)
    for claim in owners:
        yield (
            size is not None and claim.size in (size, None) and (place, claim.digest) not in found
        )


def _size_of(place: str) -> int | None:
    try:
        status = os.stat(place)  # noqa: PTH116  the path may be anything
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _expected(claim: Claim, owners: Sequence[Claim]) -> str:
    sizes = {owner.size for owner in owners}
    if len(sizes) == 1 and claim.digest:
        return claim.digest
    return "a file" if claim.size is None else f"{claim.size} bytes"


def _found(place: str, found: Mismatches) -> str:
    hashed = next((digest for (path, _), digest in found.items() if path == place), "")
    size = _size_of(place)
    return hashed or ("no file" if size is None else f"{size} bytes")
