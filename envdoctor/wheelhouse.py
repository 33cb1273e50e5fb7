"""The store of fetched wheels, each in a folder named after its sha256.

HOME/wheels/
  SHA256/FILE.whl        complete, and of that hash
  SHA256/FILE.whl.part   the beginning of one that is being fetched, or was when a build ended
  SHA256/FILE.whl.bad    what a source gave in its place, for whoever wants to know
  SHA256/source          who served it, in words
  locks/                 locks that came in with `envdoctor wheelhouse import`
  .lock                  held shared by whoever works with wheels, alone by whoever deletes some

A wheel gets its name when its hash is known to be right, and is trusted by its size from then on:
to hash gigabytes at each build costs more than it finds, as uv compares the hash of all that it
unpacks.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from envdoctor.errors import BusyError, IntegrityError
from envdoctor.probes.files import list_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from envdoctor.pylock import Lock, Wheel

_SHA256 = re.compile(r"[0-9a-f]{64}")
_WHEEL = ".whl"
UNFINISHED = ".part"
_WRONG = ".bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One file of the store.

    Args:
        path: Where it lies.
        sha256: What its folder is named after.
        size: Bytes.
        is_complete: False for the beginning of a wheel, and for what was no such wheel.
    """

    path: Path
    sha256: str
    size: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Wheelhouse:
    """The wheels below one folder.

    Args:
        root: The folder; it need not be there yet.
    """

    root: Path

    @property
    def locks(self) -> Path:
        """Folder of the locks that were imported."""
        return self.root / "locks"

    def path(self, wheel: Wheel) -> Path:
        """Return where a wheel lies or would lie.

        Raises:
            IntegrityError: Its name or hash would lead out of the store.
        """
        if not _SHA256.fullmatch(wheel.sha256) or "/" in wheel.file or "\0" in wheel.file:
            raise IntegrityError(
                f"found a file {wheel.file!r} of sha256 {wheel.sha256!r}, wanted the name of a "
                "wheel and 64 hexadecimal digits",
                reference="not-a-wheel",
            )
        return self.root / wheel.sha256 / wheel.file

    def part(self, wheel: Wheel) -> Path:
        """Return where the beginning of a wheel lies while it is fetched."""
        path = self.path(wheel)
        return path.with_name(path.name + UNFINISHED)

    def has(self, wheel: Wheel) -> bool:
        """Tell whether a wheel is there as a whole."""
        try:
            size = self.path(wheel).stat().st_size
        except OSError:
            return False
        return wheel.size is None or size == wheel.size

    def source(self, wheel: Wheel) -> str:
        """Return who served a wheel that is there."""
        try:
            text = (self.path(wheel).parent / "source").read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            text = ""
        return text or "wheelhouse"

    def keep(self, wheel: Wheel, source: str) -> None:
        """Give a fetched wheel, whose hash is right, its name.

        It is not forced to the disk: of a wheel that a power cut leaves torn either the size or,
        when it is unpacked, the hash is wrong, and it is fetched again.
        """
        path = self.path(wheel)
        (path.parent / "source").write_text(source + "\n", "utf-8")
        self.part(wheel).replace(path)
        self.wrong(wheel).unlink(missing_ok=True)

    def wrong(self, wheel: Wheel) -> Path:
        """Return where that lies which is not what it should be."""
        path = self.path(wheel)
        return path.with_name(path.name + _WRONG)

    def missing(self, lock: Lock) -> list[Wheel]:
        """Return the wheels of a lock that lie neither here nor in a local folder."""
        return [one for one in lock.wheels if not self.has(one) and lock.path(one) is None]

    def missing_bytes(self, lock: Lock) -> int:
        """Return how much of a lock is yet to be fetched, as far as sizes are known."""
        parts = {wheel.file: self.part(wheel) for wheel in self.missing(lock)}
        sizes = {wheel.file: wheel.size or 0 for wheel in lock.wheels}
        return sum(max(0, sizes[file] - _size(path)) for file, path in parts.items())

    def drop_damaged(self, lock: Lock) -> list[str]:
        """Set aside the wheels of a lock whose bytes are no longer those of their hash."""
        damaged = [w for w in lock.wheels if self.has(w) and sha256_of(self.path(w)) != w.sha256]
        for wheel in damaged:
            self.path(wheel).replace(self.wrong(wheel))
        return [wheel.file for wheel in damaged]

    def listed(self) -> list[Held]:
        """Return every file of the store but the locks, sorted by the wheel's name."""
        folders = [self.root / name for name in list_folder(self.root) if _SHA256.fullmatch(name)]
        files = (folder / name for folder in folders for name in list_folder(folder))
        found = [
            Held(
                path=path,
                sha256=path.parent.name,
                size=_size(path),
                is_complete=path.name.endswith(_WHEEL),
            )
            for path in files
            if path.name.endswith((_WHEEL, UNFINISHED, _WRONG))
        ]
        return sorted(found, key=lambda one: (one.path.name, one.sha256))

    def write_index(self, folder: Path) -> str:
        """Lay the complete wheels out as an index (PEP 503) and return its address.

        Args:
            folder: Where; it holds names and hashes only.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for one in self.listed():
            if not one.is_complete:
                continue
            try:
                name, *_ = parse_wheel_filename(one.path.name)
            except InvalidWheelFilename:
                continue
            page = folder / name / "index.html"
            page.parent.mkdir(exist_ok=True)
            with page.open("a", encoding="utf-8") as stream:
                address = f"{one.path.as_uri()}#sha256={one.sha256}"
                stream.write(f'<a href="{escape(address)}">{escape(one.path.name)}</a>\n')
        return folder.as_uri()

    @contextmanager
    def used(self, *, alone: bool = False) -> Iterator[None]:
        """Keep others from deleting wheels, or everybody from using them.

        Raises:
            BusyError: If alone: somebody works with them. Else: somebody deletes some.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("a") as stream:
            kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
            try:
                fcntl.flock(stream, kind | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BusyError(
                    f"another envdoctor works with the wheels in {self.root}",
                    reference="wheelhouse-busy",
                    hint="try again when it has ended",
                ) from error
            except OSError:
                pass  # a file system without locks
            yield

    def prune(self, kept: Iterable[str]) -> list[Held]:
        """Delete all files but complete wheels of these sha256; call it alone.

        Returns:
            What was deleted.
        """
        wanted = set(kept)
        gone = [one for one in self.listed() if not one.is_complete or one.sha256 not in wanted]
        for one in gone:
            one.path.unlink(missing_ok=True)
            if not any(name.endswith(_WHEEL) for name in list_folder(one.path.parent)):
                (one.path.parent / "source").unlink(missing_ok=True)
                with suppress(OSError):  # the next file of the folder is yet to be deleted
                    one.path.parent.rmdir()
        return gone


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
