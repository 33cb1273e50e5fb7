"""Compare what is installed with what every RECORD promises."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from envdoctor.facts import (
    DifferingFile,
    Distribution,
    DistributionFiles,
    DistributionsFact,
    FactSet,
    RecordsFact,
)
from envdoctor.probes.digests import Task, can_check, mismatches
from envdoctor.probes.files import UnreadableError
from envdoctor.probes.installed_files import Comparison, compare_rows, place_of
from envdoctor.probes.metadata_edits import is_readable, original_version
from envdoctor.probes.ownership import Claims, find_claims, group, undecided
from envdoctor.probes.record import MAX_ROWS, Record, is_library, matters, read_record
from envdoctor.value import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from envdoctor.probes.subject import Subject

_ALL_ROWS = 200_000
"""Rows of all RECORDs together; they take about 80 MB."""


@value
class Reading:
    """One distribution's RECORD: its rows, or why there are none."""

    dist: Distribution
    record: Record
    error: str = ""

    @property
    def site(self) -> str:
        """The package folder to which recorded paths are relative."""
        return self.dist.path.rpartition("/")[0]

    @property
    def metadata(self) -> str:
        """Path of METADATA as RECORD writes it."""
        return f"{self.dist.path.rpartition('/')[2]}/METADATA"


def read_records(subject: Subject, facts: FactSet) -> RecordsFact:
    """Compare the files of the distributions that matter, or of all if the subject says so.

    Every RECORD is read, since any distribution may have recorded a path of one that matters.
    """

    def wanted(name: str) -> bool:
        return subject.all_records or matters(name) or name in subject.policy.packages

    installed = facts.need(DistributionsFact)
    recorded = [dist for dist in installed.distributions if dist.has_record]
    readings = list(_read_all(sorted(recorded, key=lambda dist: not wanted(dist.name))))
    chosen = {
        reading.dist.path: (reading, _compare(reading, str(subject.prefix)))
        for reading in readings
        # of a name that is installed twice, only the one that is seen; the other is a leftover
        if wanted(reading.dist.name) and reading.dist is installed.find(reading.dist.name)
    }
    claims = find_claims([(item.dist.name, item.site, item.record.rows) for item in readings])
    tasks = [task for pair in chosen.values() for task in _tasks(*pair, deep=subject.deep)]
    wrong = mismatches([*tasks, *undecided(claims, deep=subject.deep)], progress=subject.progress)
    return RecordsFact(
        distributions=tuple(
            _files(
                *chosen[dist.path],
                wrong=wrong,
                claims=claims,
                installed=installed.distributions,
            )
            for dist in recorded
            if dist.path in chosen
        ),
        libraries=tuple(library for reading in readings for library in _libraries(reading)),
        shared=tuple(group(claims, wrong, wanted)),
        num_hashed=len(tasks),
    )


def _read_all(dists: Iterable[Distribution]) -> Iterator[Reading]:
    left = _ALL_ROWS
    for dist in dists:
        try:
            record = read_record(f"{dist.path}/RECORD", max_rows=min(left, MAX_ROWS))
        except UnreadableError as error:
            yield Reading(dist, Record([]), str(error))
            continue
        left -= len(record.rows)
        yield Reading(dist, record)


def _compare(reading: Reading, prefix: str) -> Comparison:
    site = reading.site
    bounds = [prefix, site]
    above, _, name = site.rpartition("/")
    if name in ("site-packages", "dist-packages"):
        # lib/python3.11/site-packages: scripts and data lie three folders up
        bounds.append(above.rpartition("/")[0].rpartition("/")[0] or "/")
    return compare_rows(site, reading.record.rows, bounds)


def _tasks(reading: Reading, comparison: Comparison, *, deep: bool) -> Iterator[Task]:
    """Yield what to hash: all that has its size, or just the few small files that name versions."""
    always = {reading.metadata, "torch/version.py"}
    rows = reading.record.rows
    left_out = comparison.failed | comparison.outside | comparison.rewritten
    for path, digest, size in rows if deep else [row for row in rows if row[0] in always]:
        if path not in left_out and can_check(digest):
            yield Task(f"{reading.site}/{path}", digest, size or 0)


def _files(
    reading: Reading,
    comparison: Comparison,
    *,
    wrong: Mapping[tuple[str, str], str],
    claims: Claims,
    installed: Sequence[Distribution],
) -> DistributionFiles:
    dist, site, rows = reading.dist, reading.site, reading.record.rows
    for path, digest, _ in rows if wrong else ():
        if found := wrong.get((f"{site}/{path}", digest)):
            place = place_of(site, path)
            comparison.add(path, DifferingFile(path=place, expected=digest, found=found))
    edited = reading.metadata in comparison.failed and is_readable(f"{dist.path}/METADATA")
    digest = next((row[1] for row in rows if row[0] == reading.metadata), "") if edited else ""
    if edited:
        comparison.failed.discard(reading.metadata)
        comparison.differing.pop(reading.metadata, None)
    return DistributionFiles(
        name=dist.name,
        path=dist.path,
        num_files=len(rows) - len(comparison.outside),
        num_libraries=sum(1 for _ in _libraries(reading)),
        differing=tuple(_with_owners(file, claims, dist) for file in comparison.differing.values()),
        num_differing=len(comparison.failed),
        metadata_edited=edited,
        original_version=original_version(dist, digest, installed) if can_check(digest) else "",
        unread=tuple(_unread(reading, comparison)),
        error=reading.error,
    )


def _libraries(reading: Reading) -> Iterator[tuple[str, str]]:
    for path in [row[0] for row in reading.record.rows if ".so" in row[0]]:
        if is_library(path) and not path.startswith(("/", "..")):
            yield reading.dist.name, f"{reading.site}/{path}"


def _with_owners(file: DifferingFile, claims: Claims, dist: Distribution) -> DifferingFile:
    others = [claim.owner for claim in claims.get(file.path, ()) if claim.owner != dist.name]
    return replace(file, others=tuple(others)) if others else file


def _unread(reading: Reading, comparison: Comparison) -> Iterator[str]:
    yield from reading.record.unread
    own = f"{reading.dist.path.rpartition('/')[2]}/RECORD"
    rows = reading.record.rows
    if rows and not reading.record.unread and (own, "", None) not in rows:
        yield "files that RECORD no longer lists: its own row is gone"
    if comparison.outside:
        example = min(comparison.outside)
        yield f"{len(comparison.outside)} recorded paths out of the environment, such as {example}"
