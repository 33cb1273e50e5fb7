"""The only place that starts processes."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from envdoctor.errors import ToolError
from envdoctor.outputs import Output
from envdoctor.urls import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

_GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.5
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Asks the kernel to signal the process when its parent dies, then becomes the wanted program.
# preexec_fn could do the same, but it may deadlock in a process that has threads.
_TIED = """
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
import ctypes, os, sys
parent, death_signal, *argv = sys.argv[1:]
ctypes.CDLL(None).prctl(1, int(death_signal))
if os.getppid() != int(parent):
    sys.exit(1)
try:
    os.execv(argv[0], argv)
except OSError as error:
    sys.exit(f"{argv[0]}: {error.strerror}")
"""


class Watch(Protocol):
    """Whoever wants to know how a program gets on."""

    def line(self, text: str, /) -> None:
        """Take a line of its standard error."""

    def waiting(self, pid: int, /) -> None:
        """Take note that it has said nothing for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a process ended; a negative code is the signal that ended it."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float,
    cwd: Path | None = None,
    log: IO[str] | None = None,
    watch: Watch | None = None,
) -> Completed:
    """Run a program to its end and return what it wrote.

    It dies with this process, whatever ends this process, and it is ended with its whole process
    group on an exception such as Ctrl-C. What it leaves running in its group is killed as well.
    Call it from the main thread: the kernel ties it to the thread that started it.

    Args:
        argv: Absolute path of the program, then its arguments.
        env: All its environment variables.
        timeout: Seconds after which it is ended.
        cwd: Folder to run in.
        log: Stream that takes its command line and output as they come, without credentials.
        watch: Told of each line of its standard error, and of its waiting.

    Returns:
        How it ended; of a very long output the end.

    Raises:
        ToolError: There is no such program.
        TimeoutError: It did not end in time.
    """
    write = _writer(log)
    write(f"$ {shlex.join(argv)}")
    stdout, stderr = Output(), Output([write, watch.line] if watch else [write])
    start = time.monotonic()
    process = _start(argv, env=env, cwd=cwd, death_signal=signal.SIGKILL, output=subprocess.PIPE)
    try:
        outputs = {process.stdout: stdout, process.stderr: stderr}
        _read(process, deadline=start + timeout, outputs=outputs, watch=watch)
    except BaseException as error:
        _end(process)
        if isinstance(error, TimeoutError):
            raise TimeoutError(f"{argv[0]} did not end within {timeout:g} s") from None
        raise
    finally:
        _close(process)
    return Completed(
        returncode=process.wait(),
        stdout=stdout.text,
        stderr=stderr.text,
        seconds=time.monotonic() - start,
    )


def supervise(argv: Sequence[str], *, env: Mapping[str, str], keep: Sequence[int] = ()) -> int:
    """Run a program in the foreground, pass signals on to it, and return its exit code.

    The program has its own process group, so that a Ctrl-C in the terminal, which reaches every
    process of the foreground group, reaches it once: through here. If this process is killed, the
    program gets SIGTERM.

    Args:
        argv: Absolute path of the program, then its arguments.
        env: All its environment variables.
        keep: File descriptors that it is to hold open as well.

    Returns:
        Its exit code, or 128 plus the number of the signal that ended it.

    Raises:
        ToolError: There is no such program.
    """
    with _forwarding() as attach:
        process = _start(argv, env=env, death_signal=signal.SIGTERM, keep=keep)
        attach(process)
        code = process.wait()
    return code if code >= 0 else 128 - code


def _start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    death_signal: signal.Signals,
    output: int | None = None,
    keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    program = Path(argv[0])
    if not program.is_file():
        raise ToolError(f"{program}: no such program", reference="program-not-found")
    if not os.access(program, os.X_OK):
        raise ToolError(f"{program}: it is not executable", reference="program-not-executable")
    tie = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), str(int(death_signal))]
    return subprocess.Popen(
        [*(tie if sys.platform == "linux" else ()), *argv],
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=keep,
        process_group=0,
    )


def _read(
    process: subprocess.Popen[bytes],
    *,
    deadline: float,
    outputs: Mapping[IO[bytes] | None, Output],
    watch: Watch | None,
) -> None:
    """Read until a process has ended and its outputs have."""
    with selectors.DefaultSelector() as selector:
        for stream, output in outputs.items():
            if stream:
                selector.register(stream, selectors.EVENT_READ, output)
        while selector.get_map():
            if time.monotonic() > deadline:
                raise TimeoutError
            ready = [key for key, _ in selector.select(_POLL_SECONDS)]
            if _has_ended(process) and not ready:
                break  # whoever holds the pipes open has left its group
            if not ready and watch:
                watch.waiting(process.pid)
            for key in ready:
                _take(key, selector)
    _wait(process, deadline)


def _take(key: selectors.SelectorKey, selector: selectors.BaseSelector) -> None:
    chunk = os.read(key.fd, 65536)
    key.data.take(chunk)
    if not chunk:
        selector.unregister(key.fileobj)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether a process has ended; what it left in its group may hold its pipes open."""
    if process.returncode is None and process.poll() is not None:
        _kill_rest(process)
    return process.returncode is not None


def _wait(process: subprocess.Popen[bytes], deadline: float) -> None:
    """Wait for a process without outputs: it may have closed them and go on."""
    if process.returncode is None:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        _kill_rest(process)


def _kill_rest(process: subprocess.Popen[bytes]) -> None:
    """Kill what a process that has ended left in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _writer(log: IO[str] | None) -> Callable[[str], None]:
    def write(line: str) -> None:
        if log:
            log.write(mask(line) + "\n")
            log.flush()

    return write


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process group: politely first, so that the program can remove its temporary files.

    A process that hangs in the kernel, as in a broken driver, outlives even SIGKILL and is left.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP stop the work as Ctrl-C does, so that it can tidy up."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _forwarding() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Keep signals that come before there is a process, and pass on all to it afterwards."""
    early: list[int] = []
    processes: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if processes:
            processes[0].send_signal(number)
        else:
            early.append(number)

    def attach(process: subprocess.Popen[bytes]) -> None:
        processes.append(process)
        for number in early:
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield attach
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
