"""Write caches into one file."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time
from typing import TYPE_CHECKING

import msgspec

from envdoctor.caches import stamp as stamps
from envdoctor.caches.archive import MANIFEST, MOVABLE, ArchivedFile, Manifest, member_name
from envdoctor.caches.entries import COUNTED
from envdoctor.errors import IntegrityError, SpaceError, UsageError, VerificationError
from envdoctor.probes.cache_content import read_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from envdoctor.caches.fingerprint import Fingerprint
    from envdoctor.caches.survey import Survey

_LEVEL = 3
"""Of compression: code and pickles shrink to a third at the speed of a disk."""


def export(surveys: Sequence[Survey], fingerprint: Fingerprint, target: Path) -> Manifest:
    """Write all entries that are valid, or against which nothing is known, into a file.

    The file appears in one step, when all of it is written.

    Args:
        surveys: Of a deep verification.
        fingerprint: Of the environment.
        target: Must not be there yet.

    Returns:
        What was written.

    Raises:
        UsageError: There is such a file, or nothing to export.
        VerificationError: A part of a cache could not be looked at.
        IntegrityError: A cache changed meanwhile.
        SpaceError: The file cannot be written.
    """
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} is there already", reference="target-exists")
    moved = [survey for survey in surveys if survey.place.kind in MOVABLE]
    for survey in moved:
        for reason in survey.unread:
            raise VerificationError(
                f"{survey.root} cannot be exported as a whole; not read: {reason}",
                reference="cache-not-read",
            )
    manifest = Manifest(
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        fingerprint=fingerprint,
        roots={survey.place.kind: survey.root for survey in moved},
        runs=_runs(moved, fingerprint),
        files=tuple(file for survey in moved for file in _files(survey)),
    )
    if not manifest.files:
        raise UsageError("no cache holds anything to export", reference="nothing-to-export")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as stream:
            with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=_LEVEL) as archive:
                _write(archive, manifest)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.rename(target)
    except OSError as error:
        raise SpaceError(
            f"{target} cannot be written: {error.strerror or error}", reference="export-failed"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return manifest


def _runs(surveys: Iterable[Survey], fingerprint: Fingerprint) -> dict[str, str]:
    own = [stamps.matching(survey.stamps, fingerprint) for survey in surveys]
    return {name: digest for stamp in own if stamp for name, digest in stamp.runs.items()}


def _files(survey: Survey) -> Iterable[ArchivedFile]:
    for one in survey.judgements:
        digests = survey.readings[one.entry.path].digests or {}
        is_whole = all(file.path in digests and file.path.isprintable() for file in one.entry.files)
        if is_whole and one.kind in ("valid", "unknown") and one.entry.kind in COUNTED:
            for file in one.entry.files:
                yield ArchivedFile(
                    survey.place.kind,
                    file.path,
                    file.size,
                    digests[file.path],
                    one.kind == "valid",
                )


def _write(archive: tarfile.TarFile, manifest: Manifest) -> None:
    _add(archive, MANIFEST, msgspec.json.encode(manifest))
    for index, file in enumerate(manifest.files):
        try:
            content = read_whole(f"{manifest.roots[file.kind]}/{file.path}")
        except OSError:
            content = b""  # gone meanwhile
        if hashlib.sha256(content).hexdigest() != file.digest:
            raise IntegrityError(
                f"{file.path} has changed while it was exported",
                reference="cache-in-use",
                hint="export again when nothing compiles",
            )
        _add(archive, member_name(index), content)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
