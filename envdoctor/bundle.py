"""Carry a lock and all its wheels to a machine without network, as a folder or one tar archive.

A bundle is flat: `pylock.PROFILE-PYTHON-PLATFORM.toml` and the wheels that it names. Any tool that
reads PEP 751 installs from it as well.
"""

from __future__ import annotations

import hashlib
import io
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envdoctor import archive, durable, lockfile, locking, part
from envdoctor.errors import IntegrityError, UsageError, UserFileError
from envdoctor.filesystem import GIGABYTE, enough_space, require_space
from envdoctor.pylock import total_size
from envdoctor.session import begun
from envdoctor.stock import stocked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envdoctor.archive import Readable, Reader
    from envdoctor.build import BuildRequest
    from envdoctor.lockfile import Locked
    from envdoctor.pylock import Wheel
    from envdoctor.settings import Settings
    from envdoctor.talk import Stages, Talk
    from envdoctor.wheelhouse import Wheelhouse

_LOCK = re.compile(r"pylock\.[a-z0-9_-]+\.toml")
_LOCK_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came in.

    Args:
        lock: Where its lock lies now.
        profile: Name of the profile that it is for.
        num_wheels: How many wheels it names.
        num_new: How many of them were not there yet.
    """

    lock: Path
    profile: str
    num_wheels: int
    num_new: int


def export(request: BuildRequest, target: Path, *, settings: Settings, talk: Talk) -> int:
    """Write the lock of a profile and all its wheels, fetching those that are not here.

    Args:
        request: Says which profile, and from where; nothing is built.
        target: A file ending in `.tar`, which appears when it is complete, or a folder.
        settings: Where wheels are kept, and the variables of this process.
        talk: Told of each stage.

    Returns:
        The number of wheels.

    Raises:
        UsageError: The target is there and of the other kind.
        EnvdoctorError: A wheel is nowhere to be had, or there is no room.
    """
    target = target.absolute()
    if target.is_dir() if target.suffix == archive.SUFFIX else target.is_file():
        raise UsageError(
            f"{target}: found {'a folder' if target.is_dir() else 'a file'}, wanted a name ending "
            f"in {archive.SUFFIX} for an archive, any other for a folder",
            reference="export-target",
        )
    with begun(request, settings=settings, talk=talk) as (shop, plan), shop.wheelhouse.used():
        with shop.stages.stage("resolve", f"profile {request.profile.name}"):
            found = locking.resolved(plan, shop, folder=request.locks, strict=request.locked)
        lock = stocked(found.lock, plan, shop)
        header = locking.header(request.profile, shop.interpreter)
        text = lockfile.text_of(lockfile.Locked(header=header, lock=lock)).encode()
        name = lockfile.file_name(request.profile.name, shop.interpreter)
        size = total_size(lock.wheels)
        require_space(target, need=size, parts=f"{size / GIGABYTE:.1f} wheels")
        with (
            shop.stages.stage("export", f"{len(lock.wheels)} wheels to {target}"),
            _reported(target),
            archive.writing(target) as writer,
        ):
            writer.add(name, len(text), io.BytesIO(text))
            for wheel in lock.wheels:
                shop.stages.tool(wheel.file)
                path = lock.path(wheel)
                if path is None:
                    raise _wrong(f"{wheel.file} is gone")
                with path.open("rb") as stream:
                    hashing = _Hashing(stream)
                    writer.add(wheel.file, path.stat().st_size, hashing)
                    hashing.require(wheel)
    return len(lock.wheels)


def bring_in(source: Path, house: Wheelhouse, stages: Stages) -> Imported:
    """Take the wheels of a bundle into the wheelhouse, and then its lock.

    Args:
        source: What `export` wrote.
        house: Where to.
        stages: Told of each wheel.

    Raises:
        UserFileError: It is not there, or its lock is not valid.
        IntegrityError: A wheel is missing or not what the lock says; none of it is kept.
        SpaceError: There is no room.
    """
    if not source.exists():
        raise UserFileError(f"{source}: no such file or folder", reference="no-bundle")
    with (
        stages.stage("import", str(source)),
        house.used(),
        _reported(house.root),
        archive.reading(source) as reader,
    ):
        name = _lock_name(reader, source)
        with reader.open(name) as stream:
            text = stream.read(_LOCK_BYTES)
        locked = lockfile.parse(text.decode("utf-8", "replace"), name=f"{source}: {name}")
        missing = [one.file for one in locked.lock.wheels if one.file not in reader.names]
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            raise _wrong(
                f"{source} lacks {', '.join(missing[:_SHOWN])}{more}, which its lock names"
            )
        wanted = house.missing(locked.lock)
        size = total_size(wanted)
        require_space(house.root, need=size, parts=f"{size / GIGABYTE:.1f} wheels")
        for wheel in wanted:
            stages.tool(wheel.file)
            with reader.open(wheel.file) as stream:
                _take_in(wheel, stream, house, source=str(source))
        path = _keep_lock(house, locked, name)
    return Imported(
        lock=path,
        profile=locked.header.profile,
        num_wheels=len(locked.lock.wheels),
        num_new=len(wanted),
    )


class _Hashing:
    """Reads a file and hashes what is read."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        chunk = self._stream.read(size)
        self._hash.update(chunk)
        return chunk

    def require(self, wheel: Wheel) -> None:
        found = self._hash.hexdigest()
        if found != wheel.sha256:
            raise _wrong(f"{wheel.file}: the file has sha256 {found}, wanted {wheel.sha256}")


def _take_in(wheel: Wheel, stream: Readable, house: Wheelhouse, *, source: str) -> None:
    with part.opened(house.part(wheel)) as found:
        found.restart()
        while chunk := stream.read(_CHUNK_BYTES):
            found.write(chunk, source)
            if found.length > (wheel.size or 0):
                break
        if found.sha256 != wheel.sha256:
            sha256 = found.sha256
            house.part(wheel).unlink()
            raise _wrong(
                f"{source}: {wheel.file} has sha256 {sha256}, but its lock has {wheel.sha256}"
            )
        house.keep(wheel, source)


def _lock_name(reader: Reader, source: Path) -> str:
    names = [name for name in reader.names if _LOCK.fullmatch(name)]
    if len(names) != 1:
        found = ", ".join(names[:_SHOWN]) or "none"
        raise UserFileError(
            f"{source}: found {found}, wanted one lock named pylock.*.toml",
            reference="bundle-not-valid",
            hint="`envdoctor wheelhouse export` writes what can be imported",
        )
    return names[0]


def _keep_lock(house: Wheelhouse, locked: Locked, name: str) -> Path:
    house.locks.mkdir(parents=True, exist_ok=True)
    path = house.locks / name
    durable.replace_text(path, lockfile.text_of(locked))
    return path


@contextmanager
def _reported(place: Path) -> Iterator[None]:
    """Say of a file that cannot be read or written which it is, and whether for lack of room."""
    try:
        with enough_space(place):
            yield
    except OSError as error:
        raise UserFileError(
            f"{error.filename or place}: {error.strerror}", reference="bundle-not-accessible"
        ) from error


def _wrong(message: str) -> IntegrityError:
    return IntegrityError(message, reference="hash-mismatch")
