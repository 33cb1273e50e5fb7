"""Stamp what passed a deep verification."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from envdoctor.caches import stamp as stamps
from envdoctor.caches.entries import COUNTED, name_of
from envdoctor.caches.stamp import Stamp, StampedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from envdoctor.caches.fingerprint import Fingerprint
    from envdoctor.caches.survey import Survey


def stamp_all(
    surveys: Iterable[Survey],
    fingerprint: Fingerprint,
    *,
    home: Path,
    by: str,
    runs: Mapping[str, str] | None = None,
) -> int:
    """Stamp every entry that is valid, or stale by its stamp alone, or of which nothing is known.

    What was stamped before and is corrupt now stays in the stamp as it was.

    Args:
        surveys: Of a deep verification, which read every byte.
        fingerprint: Of the environment that looks the entries up.
        home: envdoctor's own folder.
        by: What vouches: `warm`, `verify` or `import`.
        runs: What was warmed for, by the run's name.

    Returns:
        How many entries are stamped now.

    Raises:
        SpaceError: A stamp cannot be written.
    """
    number = 0
    for survey in surveys:
        if not (survey.exists or runs):
            continue
        passed = list(_passed(survey))
        before = stamps.matching(survey.stamps, fingerprint)
        files = {file.path: file for file in _remembered(survey, before)}
        files |= {file.path: file for _, file in passed}
        number += len({path for path, _ in passed})
        stamps.save(
            home,
            Stamp(
                root=survey.root,
                kind=survey.place.kind,
                fingerprint=fingerprint,
                made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                by=by,
                runs={**(before.runs if before else {}), **(runs or {})},
                files=tuple(files[path] for path in sorted(files)),
            ),
        )
    return number


def forget_lost(surveys: Sequence[Survey], *, home: Path) -> None:
    """Take what is gone out of the stamps, before it is compiled anew with maybe other bytes.

    If anything is, no run counts as warmed for until the caches are stamped again.

    Raises:
        SpaceError: A stamp cannot be written.
    """
    present = [_present(survey) for survey in surveys]
    found = [
        (stamp, [file.path for file in stamp.files if file.path not in there])
        for survey, there in zip(surveys, present, strict=True)
        for stamp in survey.stamps
    ]
    if any(lost for _, lost in found):
        for stamp, lost in found:
            stamps.save(home, stamps.without_runs(stamps.without(stamp, lost)))


def _present(survey: Survey) -> set[str]:
    return {file.path for one in survey.judgements for file in one.entry.files}


def _remembered(survey: Survey, before: Stamp | None) -> Iterator[StampedFile]:
    """Yield what was stamped of entries that did not pass now.

    Without it a changed entry would be unknown the next time, and be vouched for.
    """
    if before is None:
        return
    failed = [one.entry for one in survey.judgements if one.kind in ("corrupt", "foreign")]
    names = {entry.path for entry in failed}
    digests = {
        digest
        for entry in failed
        for digest in (survey.readings[entry.path].digests or {}).values()
    }
    present = _present(survey)
    for file in before.files:
        was_renamed = file.path not in present and file.digest in digests
        if was_renamed or name_of(survey.place.kind, file.path)[0] in names:
            yield file


def _passed(survey: Survey) -> Iterator[tuple[str, StampedFile]]:
    """Yield the files of entries that passed, each beside its entry's path."""
    for one in survey.judgements:
        reading = survey.readings[one.entry.path]
        is_stale = one.kind == "stale" and not reading.moved_from
        if not (is_stale or one.kind in ("valid", "unknown")) or one.entry.kind not in COUNTED:
            continue
        digests = reading.digests or {}
        # a name that is no text is none that a cache gives, and JSON cannot hold it
        if all(file.path in digests and file.path.isprintable() for file in one.entry.files):
            for file in one.entry.files:
                digest = digests[file.path]
                yield one.entry.path, StampedFile(file.path, file.size, file.mtime_ns, digest)
