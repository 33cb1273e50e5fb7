"""Hash files, many at a time: hashlib lets other threads run while it works."""

from __future__ import annotations

import os
import stat
import threading
from binascii import b2a_base64
from collections import deque
from dataclasses import dataclass, field
from errno import EINVAL
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Callable, Iterable

_ALGORITHMS = frozenset({"sha256", "sha384", "sha512"})
_BLOCK = 1024 * 1024
_MAX_WORKERS = 64
_TICK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Task:
    """One file to hash: its path, its recorded digest such as `sha256=...`, its size in bytes."""

    path: str
    digest: str
    size: int


def can_check(digest: str) -> bool:
    """Tell whether a recorded digest is of a kind that is worth comparing."""
    name, _, value = digest.partition("=")
    return name in _ALGORITHMS and bool(value)


def mismatches(
    tasks: Iterable[Task], *, progress: Callable[[int, int], None] | None = None
) -> dict[tuple[str, str], str]:
    """Hash files on all cores.

    Ctrl-C ends it at once.

    Args:
        tasks: What to hash.
        progress: Told bytes done and bytes in all, about ten times a second.

    Returns:
        By path and recorded digest: what was found, for those that are not as recorded.
    """
    work = _Work(deque(sorted(tasks, key=lambda task: task.size)))
    num_workers = min(_num_cores(), len(work.queue), _MAX_WORKERS)
    total = sum(task.size for task in work.queue)
    threads = [
        # One worker goes up from the small files, which cost Python's lock, while the others go
        # down from the large ones, which do not: so neither waits for the other.
        threading.Thread(target=work.run, kwargs={"small_first": not index}, daemon=True)
        for index in range(num_workers)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(_TICK_SECONDS)
                if progress:
                    progress(min(work.done, total), total)
    finally:
        work.stopped = True
        if progress:
            progress(total, total)
    return work.found


@dataclass(slots=True)
class _Work:
    """What the workers share.

    Queue and dictionary are safe under Python's lock; `done` may miss a block, which costs a little
    of the progress shown.
    """

    queue: deque[Task]
    found: dict[tuple[str, str], str] = field(default_factory=dict)
    done: int = 0
    stopped: bool = False

    def run(self, *, small_first: bool) -> None:
        take = self.queue.popleft if small_first else self.queue.pop
        buffer = memoryview(bytearray(_BLOCK))
        while not self.stopped:
            try:
                task = take()
            except IndexError:
                return
            digest = self._hash(task, buffer)
            if digest != task.digest:
                self.found[task.path, task.digest] = digest

    def _hash(self, task: Task, buffer: memoryview) -> str:
        try:
            return digest_of(task.path, task.digest.partition("=")[0], buffer=buffer, work=self)
        except OSError as error:
            return f"unreadable: {error.strerror}"


def digest_of(
    path: str,
    algorithm: str,
    *,
    buffer: memoryview | None = None,
    work: _Work | None = None,
) -> str:
    """Return a file's digest as RECORD writes it.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    buffer = memoryview(bytearray(_BLOCK)) if buffer is None else buffer
    state = _start(algorithm)
    # A FIFO without a writer would block a plain open for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(EINVAL, "not a regular file")
        while count := os.readv(descriptor, [buffer]):
            state.update(buffer[:count])
            if work is not None:
                work.done += count
                if work.stopped:
                    break
    finally:
        os.close(descriptor)
    return _written(algorithm, state)


def digest_of_bytes(content: bytes, algorithm: str) -> str:
    """Return the digest of bytes as RECORD writes it."""
    state = _start(algorithm)
    state.update(content)
    return _written(algorithm, state)


def _start(algorithm: str) -> hashlib._Hash:
    import hashlib  # noqa: PLC0415  it loads OpenSSL, which a report from a snapshot does not need

    return hashlib.new(algorithm, usedforsecurity=False)


def _written(algorithm: str, state: hashlib._Hash) -> str:
    text = b2a_base64(state.digest(), newline=False).decode().rstrip("=")
    return f"{algorithm}={text.replace('+', '-').replace('/', '_')}"


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
