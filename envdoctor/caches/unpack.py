"""Take an exported cache in: check every byte, then put each file into place in one step."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import stat
import tarfile
import time
import zlib
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.caches.archive import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    ArchivedFile,
    Manifest,
    invalid,
    member_name,
    read_manifest,
)
from envdoctor.caches.below import make_folders, open_below
from envdoctor.errors import IntegrityError, SpaceError
from envdoctor.value import value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from envdoctor.caches.entries import RootKind

_BLOCK = 1024 * 1024
_GROUP = "__grp__"


@value
class Placed:
    """One file as it lies in its cache now: what was archived, and its digest in hex here."""

    file: ArchivedFile
    digest: str
    is_new: bool


class Archive:
    """An exported cache that is open for reading.

    Args:
        path: The file.

    Raises:
        IntegrityError: It is no exported cache, or is damaged.
        OSError: It cannot be opened, or is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(EINVAL, "no regular file")
        with self._guarded():
            self._tar = tarfile.open(path, "r:gz")  # noqa: SIM115  closed by `close`
            self.manifest = self._read_manifest()

    def close(self) -> None:
        """Close the file."""
        self._tar.close()

    def place_all(self, roots: Mapping[RootKind, str]) -> list[Placed]:
        """Put every file into its cache; none is replaced.

        All are checked before the first is put into place. An interruption leaves whole files, and
        doing it again completes them.

        Args:
            roots: Folder of each kind of cache here.

        Raises:
            IntegrityError: The archive is damaged, or another file is where one would go.
            SpaceError: It cannot be written.
        """
        stages: dict[RootKind, Path] = {}
        try:
            for kind in {file.kind for file in self.manifest.files}:
                root = Path(roots[kind])
                root.mkdir(parents=True, exist_ok=True, mode=0o700)
                # As a temporary of Inductor's would be called: left behind, it is known for one.
                stages[kind] = root / f".{os.getpid()}.{time.time_ns()}.tmp"
                stages[kind].mkdir(mode=0o700)
            with self._guarded():
                digests = self._extract(stages, roots)
            self._require_room(roots, digests)
            return self._put(stages, roots, digests)
        except OSError as error:
            where = error.filename or " and ".join(sorted(set(roots.values())))
            raise SpaceError(
                f"the cache cannot be written: {error.strerror or error}: {where}",
                reference="import-failed",
            ) from error
        finally:
            for stage in stages.values():
                shutil.rmtree(stage, ignore_errors=True)

    def _read_manifest(self) -> Manifest:
        first = self._tar.next()
        if first is None or first.name != MANIFEST or not first.isreg():
            raise invalid(self.path, "it does not begin with a manifest")
        if first.size > MAX_MANIFEST_BYTES:
            raise invalid(self.path, "its manifest is too large")
        stream = self._tar.extractfile(first)
        return read_manifest(stream.read() if stream else b"", source=self.path)

    def _extract(self, stages: Mapping[RootKind, Path], roots: Mapping[RootKind, str]) -> list[str]:
        """Write all members beside their caches; return the digest of what each becomes."""
        found = []
        names = {(file.kind, file.path) for file in self.manifest.files}
        for index, file in enumerate(self.manifest.files):
            stage = stages[file.kind] / str(index)
            member = self._tar.next()
            if member is None or member.name != member_name(index) or not member.isreg():
                raise invalid(self.path, f"{file.path!r} is missing: cut short?")
            digest = self._copy(member, file, stage)
            if file.path.rpartition("/")[2].startswith(_GROUP):
                content = self._regrouped(file, stage.read_bytes(), roots[file.kind], names)
                stage.write_bytes(content)
                digest = hashlib.sha256(content).hexdigest()
            found.append(digest)
        self._require_end()
        return found

    def _require_end(self) -> None:
        """Read what follows the last member, which is zeros and the checksum of the whole file."""
        rest = self._tar.fileobj if self._tar.next() is None else None
        while block := rest.read(_BLOCK) if rest else b"more":
            if block.strip(b"\0"):
                raise invalid(self.path, "it holds more than its manifest names")

    def _copy(self, member: tarfile.TarInfo, file: ArchivedFile, stage: Path) -> str:
        stream = self._tar.extractfile(member)
        state, size = hashlib.sha256(), 0
        with stage.open("xb") as target:
            while stream and (block := stream.read(_BLOCK)):
                size += len(block)
                if size > file.size:
                    break
                state.update(block)
                target.write(block)
        if size != file.size or state.hexdigest() != file.digest:
            raise invalid(self.path, f"{file.path!r} does not have the hash that was written down")
        stage.chmod(0o700 if file.path.endswith(".so") else 0o600)
        return file.digest

    def _regrouped(
        self,
        file: ArchivedFile,
        content: bytes,
        root: str,
        names: AbstractSet[tuple[RootKind, str]],
    ) -> bytes:
        """Return a Triton group that names its members where they lie here."""
        folder = file.path.rpartition("/")[0]
        try:
            data = json.loads(content)
            members = data["child_paths"]
            moved = {}
            for name, path in members.items():
                inside = f"{folder}/{path.rpartition('/')[2]}"
                if (file.kind, inside) not in names:
                    raise invalid(self.path, f"{file.path!r} names {name!r}, which is not in it")
                moved[name] = f"{root}/{inside}"
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            raise invalid(self.path, f"{file.path!r} is no group of Triton's") from None
        return json.dumps({**data, "child_paths": moved}).encode()

    def _require_room(self, roots: Mapping[RootKind, str], digests: list[str]) -> None:
        """Refuse, before anything is put into place, to replace a file with another one.

        Raises:
            IntegrityError: There is such a file.
        """
        for file, digest in zip(self.manifest.files, digests, strict=True):
            present = _digest_of(roots[file.kind], file.path)
            if present and present != digest:
                raise IntegrityError(
                    f"{roots[file.kind]}/{file.path} is there with another content",
                    reference="import-conflict",
                    hint="`envdoctor cache verify --deep` tells which entries are not valid, "
                    "`envdoctor cache prune --deep` removes them; or import into an empty folder",
                )

    def _put(
        self, stages: Mapping[RootKind, Path], roots: Mapping[RootKind, str], digests: list[str]
    ) -> list[Placed]:
        placed = []
        order = sorted(
            range(len(digests)),
            # a group names the other files of its folder, so it comes after them
            key=lambda index: self.manifest.files[index].path.rpartition("/")[2].startswith(_GROUP),
        )
        for index in order:
            file = self.manifest.files[index]
            folder, _, name = file.path.rpartition("/")
            is_new = not _digest_of(roots[file.kind], file.path)
            if is_new:
                descriptor = make_folders(roots[file.kind], folder)
                try:
                    os.rename(stages[file.kind] / str(index), name, dst_dir_fd=descriptor)
                finally:
                    os.close(descriptor)
            placed.append(Placed(file, digests[index], is_new))
        return placed

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise invalid(self.path, f"it is damaged: {error}") from None


def _digest_of(root: str, path: str) -> str:
    """Return the digest of a file below a root; empty if it is not there.

    Raises:
        OSError: A part of the way to it is a link, or it cannot be read.
    """
    folder, _, name = path.rpartition("/")
    try:
        parent = open_below(root, folder)
    except FileNotFoundError:
        return ""
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=parent
        )
    except FileNotFoundError:
        return ""
    finally:
        os.close(parent)
    with os.fdopen(descriptor, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
