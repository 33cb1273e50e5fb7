"""Hash files, many at a time: hashlib lets other threads run while it works."""

from __future__ import annotations

import os
import stat
from binascii import b2a_base64
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EINVAL
from importlib import import_module
from typing import TYPE_CHECKING, Any

from envdoctor.value import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_ALGORITHMS = frozenset({"sha256", "sha384", "sha512"})
_BLOCK = 1024 * 1024
_MAX_WORKERS = 64
_TICK_SECONDS = 0.1
_FEW_BYTES = 4 * 1024 * 1024


@value
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
    total = sum(task.size for task in work.queue)
    if total <= _FEW_BYTES:
        work.run(small_first=True, start=_start_small)
        return work.found
    import threading  # noqa: PLC0415  few files do not need it

    num_workers = min(_num_cores(), len(work.queue), _MAX_WORKERS)
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


def _start(algorithm: str) -> Any:
    import hashlib  # noqa: PLC0415  it loads OpenSSL, which is worth it for gigabytes only

    return hashlib.new(algorithm, usedforsecurity=False)


def _start_small(algorithm: str) -> Any:
    """Return a hash that needs no OpenSSL, where this Python has one, as `random` does."""
    for module in ("_sha2", "_sha256") if algorithm == "sha256" else ():
        with suppress(ImportError):
            return import_module(module).sha256()
    return _start(algorithm)


def _written(algorithm: str, state: Any) -> str:
    text = b2a_base64(state.digest(), newline=False).decode().rstrip("=")
    return f"{algorithm}={text.replace('+', '-').replace('/', '_')}"


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

    def run(self, *, small_first: bool, start: Callable[[str], Any] = _start) -> None:
        take = self.queue.popleft if small_first else self.queue.pop
        buffer = memoryview(bytearray(_BLOCK))
        while not self.stopped:
            try:
                task = take()
            except IndexError:
                return
            algorithm = task.digest.partition("=")[0]
            state = start(algorithm)
            try:
                for block in blocks(task.path, buffer):
                    state.update(block)
                    self.done += len(block)
                    if self.stopped:
                        return
                digest = _written(algorithm, state)
            except OSError as error:
                digest = f"unreadable: {error.strerror}"
            if digest != task.digest:
                self.found[task.path, task.digest] = digest


def blocks(path: str, buffer: memoryview) -> Iterator[memoryview]:
    """Yield a regular file block by block, each in the same buffer.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    # A FIFO without a writer would block a plain open for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(EINVAL, "not a regular file")
        while count := os.readv(descriptor, [buffer]):
            yield buffer[:count]
    finally:
        os.close(descriptor)


def digest_of(path: str, algorithm: str) -> str:
    """Return a file's digest as RECORD writes it.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    state = _start(algorithm)
    for block in blocks(path, memoryview(bytearray(_BLOCK))):
        state.update(block)
    return _written(algorithm, state)


def digest_of_bytes(content: bytes, algorithm: str) -> str:
    """Return the digest of bytes as RECORD writes it."""
    state = _start_small(algorithm)
    state.update(content)
    return _written(algorithm, state)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
