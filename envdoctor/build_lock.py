"""One build of a profile at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import socket
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from envdoctor.errors import BusyError, SpaceError
from envdoctor.filesystem import MOUNTS, is_network

if TYPE_CHECKING:
    from collections.abc import Iterator

_POLL_SECONDS = 0.3
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK}


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


_NOBODY = Holder(host="", pid=0, started=0, since="")
"""What a lock file says that holds nothing readable."""

Release = Callable[[], None]
"""Gives a lock back."""


@contextmanager
def held(
    path: Path,
    *,
    what: str,
    waiting: Callable[[str], None] | None = None,
    mounts: Path = MOUNTS,
) -> Iterator[None]:
    """Hold a lock.

    On a local file system the kernel's lock decides, which ends with its process, however that
    ends; what is written in the file says who holds it. Where other machines share the file system,
    or it has no such locks, the file itself is the lock: it is made in one step, and whoever finds
    that its process is dead may take it away.

    Args:
        path: The lock file.
        what: What is locked, for the message.
        waiting: Told who holds the lock while this waits for it; None not to wait.
        mounts: The kernel's list of mounts.

    Raises:
        BusyError: Another process holds it, and this is not to wait.
        SpaceError: Its file cannot be written.
    """
    is_shared = is_network(path, mounts=mounts)
    told: Holder | None = None
    while True:
        taken = _taken(path, is_shared=is_shared)
        if not isinstance(taken, Holder):
            break
        error = _busy(taken, path, what=what, is_forever=is_shared and taken.host != _host())
        if waiting is None:
            raise error
        if taken != told:
            waiting(f"waiting: {error.message}; {error.hint}")
        told = taken
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        taken()


def _taken(path: Path, *, is_shared: bool) -> Release | Holder:
    """Take the lock, or return who holds it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = None if is_shared else _by_kernel(path)
        return _by_file(path) if found is None else found
    except OSError as error:
        raise SpaceError(
            f"cannot lock {path}: {error.strerror}",
            reference="home-not-writable",
            hint="set ENVDOCTOR_HOME to a folder of your own",
        ) from error


def start_tick(pid: int) -> int:
    """Return the clock tick at which a process of this machine began; 0 if there is none."""
    try:
        # Source: proc(5): field 22; the second field may hold blanks, so count from its end.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _by_kernel(path: Path) -> Release | Holder | None:
    """Take the kernel's lock; None if the file system has none."""
    stream = path.open("a+")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _read(stream)
        stream.close()
        if isinstance(error, BlockingIOError):
            return holder
        if error.errno in _NO_LOCKS:
            return None
        raise
    if not _is_still(path, stream):
        stream.close()
        return _by_kernel(path)
    _write(stream, _self())

    def release() -> None:
        with stream:
            _write(stream, None)

    return release


def _by_file(path: Path) -> Release | Holder:
    """Take the lock by making its file, unless a process that may be alive has made it."""
    own = msgspec.json.encode(_self())
    while not _made(path, own):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue
        holder = _decoded(content)
        if _may_be_alive(holder):
            return holder
        _take_away(path, content)

    def release() -> None:
        if path.read_bytes() == own:
            path.unlink()

    return release


def _made(path: Path, content: bytes) -> bool:
    """Make a file with its content in one step; False if there is one."""
    own = path.with_name(f".{path.name}.{_host()}.{os.getpid()}")
    own.write_bytes(content)
    try:
        # Source: open(2): of two that link, one fails, on NFS as well.
        os.link(own, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _made_alone(path, content)
    finally:
        own.unlink()
    return True


def _made_alone(path: Path, content: bytes) -> bool:
    """Do the same on a file system without hard links; its content comes a moment later."""
    try:
        with path.open("xb") as stream:
            stream.write(content)
    except FileExistsError:
        return False
    return True


def _take_away(path: Path, content: bytes) -> None:
    """Remove the file of a dead process; if another process was quicker, leave the file it made."""
    aside = path.with_name(f".{path.name}.{_host()}.{os.getpid()}.stale")
    with suppress(FileNotFoundError):
        path.rename(aside)
        if aside.read_bytes() != content:
            with suppress(FileExistsError):
                os.link(aside, path)
        aside.unlink()


def _is_still(path: Path, stream: TextIO) -> bool:
    """Tell whether an open file is the one of that name: somebody may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _may_be_alive(holder: Holder) -> bool:
    """Tell whether a process may still work; of another machine's nobody can tell."""
    if holder == _NOBODY:
        return False
    return holder.host != _host() or start_tick(holder.pid) == holder.started != 0


def _busy(holder: Holder, path: Path, *, what: str, is_forever: bool) -> BusyError:
    if holder == _NOBODY:
        who = "it has not said which"
    else:
        who = f"host {holder.host}, pid {holder.pid}, since {holder.since}"
    gone = f"if that process is gone, remove {shlex.quote(str(path))}"
    return BusyError(
        f"another build of {what} runs: {who}",
        reference="build-is-running",
        hint=gone if is_forever else "Ctrl-C stops this one alone",
    )


def _self() -> Holder:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Holder(host=_host(), pid=os.getpid(), started=start_tick(os.getpid()), since=now)


def _read(stream: TextIO) -> Holder:
    stream.seek(0)
    return _decoded(stream.buffer.read())


def _decoded(content: bytes) -> Holder:
    try:
        return msgspec.json.decode(content, type=Holder)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _NOBODY


def _write(stream: TextIO, holder: Holder | None) -> None:
    stream.seek(0)
    stream.truncate()
    stream.write(msgspec.json.encode(holder).decode() if holder else "")
    stream.flush()


def _host() -> str:
    return socket.gethostname()
