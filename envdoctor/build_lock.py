"""One build of a profile at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from envdoctor.errors import BusyError
from envdoctor.filesystem import MOUNTS, is_network

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock.

    Args:
        host: Machine.
        pid: Process on it.
        started: Clock tick at which the process began, which tells it from a later one.
        since: When the lock was taken, UTC.
    """

    host: str
    pid: int
    started: int
    since: str


@contextmanager
def held(path: Path, *, what: str, mounts: Path = MOUNTS) -> Iterator[None]:
    """Hold a lock file.

    The kernel's lock decides: it ends with its process, however that ends. What is written in the
    file says who holds it, and decides where the kernel's lock may not reach: on a network file
    system, whose other machines may not see it.

    Args:
        path: The lock file, which stays.
        what: What is locked, for the message.
        mounts: The kernel's list of mounts.

    Raises:
        BusyError: Another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as stream:
        has_lock = _try_lock(stream)
        holder = _read(stream)
        is_shared = is_network(path, mounts=mounts)
        if has_lock is False or _may_be_alive(holder, is_shared=is_shared, has_lock=bool(has_lock)):
            raise _busy(holder, path, what=what)
        _write(
            stream,
            Holder(host=_host(), pid=os.getpid(), started=start_tick(os.getpid()), since=_now()),
        )
        try:
            yield
        finally:
            _write(stream, None)


def start_tick(pid: int) -> int:
    """Return the clock tick at which a process of this machine began; 0 if there is none."""
    try:
        # Source: proc(5): field 22; the second field may hold blanks, so count from its end.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _try_lock(stream: IO[str]) -> bool | None:
    """Take the kernel's lock; None if the file system has none."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def _may_be_alive(holder: Holder | None, *, is_shared: bool, has_lock: bool) -> bool:
    """Tell whether the process that wrote its name may still work, seen without its lock."""
    if holder is None:
        return False
    if holder.host == _host():
        return not has_lock and start_tick(holder.pid) == holder.started != 0
    return is_shared or not has_lock


def _busy(holder: Holder | None, path: Path, *, what: str) -> BusyError:
    if holder is None:
        return BusyError(f"another process holds {what}", reference="build-is-running")
    who = f"host {holder.host}, pid {holder.pid}, since {holder.since}"
    elsewhere = holder.host != _host()
    return BusyError(
        f"another build of {what} runs: {who}",
        reference="build-is-running",
        hint=f"if that process is gone, remove {path}" if elsewhere else "wait for it to end",
    )


def _read(stream: IO[str]) -> Holder | None:
    stream.seek(0)
    try:
        return msgspec.json.decode(stream.read(), type=Holder)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _write(stream: IO[str], holder: Holder | None) -> None:
    stream.seek(0)
    stream.truncate()
    stream.write(msgspec.json.encode(holder).decode() if holder else "")
    stream.flush()


def _host() -> str:
    return socket.gethostname()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
