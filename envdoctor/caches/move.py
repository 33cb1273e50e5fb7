"""Import an exported cache into the caches of an environment."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.caches import stamp as stamps
from envdoctor.caches.fingerprint import differences
from envdoctor.caches.stamp import Stamp, StampedFile
from envdoctor.caches.unpack import Archive, Placed
from envdoctor.errors import UsageError, VerificationError
from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from envdoctor.caches.archive import Manifest
    from envdoctor.caches.entries import RootKind
    from envdoctor.caches.fingerprint import Fingerprint
    from envdoctor.probes.cache_places import CachePlace


@keyword_value
class Imported:
    """What an import did.

    Args:
        num_new: Files that were put into place.
        num_present: Files that were there already, with the same content.
        num_stamped: Files that are vouched for, as where they were exported.
        roots: Caches that they lie in.
    """

    num_new: int
    num_present: int
    num_stamped: int
    roots: tuple[str, ...]


def import_cache(
    source: Path,
    places: Sequence[CachePlace],
    fingerprint: Fingerprint,
    *,
    home: Path,
    force: bool = False,
) -> Imported:
    """Put the entries of an exported cache into the caches of an environment.

    Args:
        source: The exported file.
        places: The environment's caches.
        fingerprint: Of the environment.
        home: envdoctor's own folder.
        force: True to take a cache of other surroundings; its entries are not valid here.

    Raises:
        UsageError: There is no such file, or no place for a cache in it.
        VerificationError: It is from other surroundings.
        IntegrityError: It is damaged, or would replace a file.
        SpaceError: It cannot be written.
    """
    try:
        archive = Archive(source)
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror or error}", reference="no-archive") from error
    try:
        manifest = archive.manifest
        if not force:
            require_same(fingerprint, manifest, source=source)
        roots = _roots(manifest, places, source=source)
        placed = archive.place_all(roots)
    finally:
        archive.close()
    num_stamped = _stamp(manifest, placed, roots=roots, home=home)
    num_new = sum(one.is_new for one in placed)
    return Imported(
        num_new=num_new,
        num_present=len(placed) - num_new,
        num_stamped=num_stamped,
        roots=tuple(sorted(set(roots.values()))),
    )


def require_same(fingerprint: Fingerprint, manifest: Manifest, *, source: Path) -> None:
    """Refuse a cache that this environment would not look up.

    Raises:
        VerificationError: It was exported from other surroundings; the message says which.
    """
    if found := differences(fingerprint, manifest.fingerprint):
        raise VerificationError(
            f"{source} is from other surroundings: {'; '.join(map(str, found))}",
            reference="another-fingerprint",
            hint="--force takes it all the same; its entries are then stale or foreign",
        )


def _roots(
    manifest: Manifest, places: Sequence[CachePlace], *, source: Path
) -> dict[RootKind, str]:
    """Return where each kind of cache in an archive goes."""
    known: dict[RootKind, str] = {place.kind: os.path.realpath(place.path) for place in places}
    # Triton's own folder may be the same as Inductor's, and is then listed under that.
    known.setdefault("triton", known.get("inductor", ""))
    kinds = {file.kind for file in manifest.files}
    if lacking := sorted(kind for kind in kinds if not known.get(kind)):
        raise UsageError(
            f"{source} holds a cache of {lacking[0]}, which has no place here",
            reference="no-place",
            hint="set HOME, or the variable that names the cache",
        )
    return {kind: known[kind] for kind in kinds}


def _stamp(
    manifest: Manifest, placed: Sequence[Placed], *, roots: Mapping[RootKind, str], home: Path
) -> int:
    """Vouch here for what was vouched for where it was exported."""
    number = 0
    for root in set(roots.values()):
        kinds = [kind for kind, path in roots.items() if path == root]
        files = {
            one.file.path: StampedFile(
                one.file.path,
                (state := Path(root, one.file.path).lstat()).st_size,
                state.st_mtime_ns,
                one.digest,
            )
            for one in placed
            if one.file.kind in kinds and one.file.is_stamped
        }
        before = stamps.matching(stamps.load_all(home, root), manifest.fingerprint)
        kept = {file.path: file for file in before.files} if before else {}
        merged = {**kept, **files}
        stamps.save(
            home,
            Stamp(
                root=root,
                kind="inductor" if "inductor" in kinds else kinds[0],
                fingerprint=manifest.fingerprint,
                made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                by="import",
                runs={**(before.runs if before else {}), **manifest.runs},
                files=tuple(merged[path] for path in sorted(merged)),
            ),
        )
        number += len(files)
    return number
