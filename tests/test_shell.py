"""Processes: output, time limits, signals, and death together with their parent."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor import shell
from envdoctor.errors import ToolError
from envdoctor.outputs import KEPT_BYTES, Output
from tests.processes import is_alive, wait_until

ROOT = Path(__file__).parent.parent
ENV = dict(os.environ)


class Watcher:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.waited = 0

    def line(self, text: str, /) -> None:
        self.lines.append(text)

    def waiting(self, pid: int, /) -> None:
        assert is_alive(pid)
        self.waited += 1


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def start_driver(tmp_path: Path, call: str, child: str) -> tuple[subprocess.Popen[str], int]:
    """Start a Python that runs `call` on a child; return it with the child's pid."""
    pid_file = tmp_path / "pid"
    child = (
        f"import os, pathlib\npathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n{child}"
    )
    imports = "import os, sys\nfrom envdoctor import shell"
    code = f"{imports}\nargv = [sys.executable, '-c', {child!r}]\n{call}"
    driver = subprocess.Popen(python(code), cwd=ROOT, text=True, stdout=subprocess.PIPE)
    wait_until(lambda: pid_file.exists() and pid_file.read_text())
    return driver, int(pid_file.read_text())


def test_run_returns_code_and_both_outputs() -> None:
    done = shell.run(
        python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"),
        env=ENV,
        timeout=20,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_run_hands_on_lines_as_they_come_and_logs_without_credentials() -> None:
    log, watch = io.StringIO(), Watcher()
    code = (
        "import sys; print('a https://u:secret@h/x', file=sys.stderr); print('b', file=sys.stderr)"
    )
    shell.run(python(code), env=ENV, timeout=20, log=log, watch=watch)
    assert watch.lines == ["a https://u:secret@h/x", "b"]
    assert log.getvalue().startswith(f"$ {sys.executable} -c ")
    assert log.getvalue().endswith("a https://****@h/x\nb\n")
    assert "secret" not in log.getvalue().splitlines()[-2]


def test_run_tells_of_silence() -> None:
    watch = Watcher()
    shell.run(python("import time; time.sleep(1.4)"), env=ENV, timeout=20, watch=watch)
    assert watch.waited >= 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_stoppable_work_tidies_up_after_other_signals_than_an_interrupt(
    tmp_path: Path, number: signal.Signals
) -> None:
    call = (
        "try:\n    with shell.stoppable(): shell.run(argv, env=dict(os.environ), timeout=60)\n"
        "except KeyboardInterrupt as error:\n    print('clean', error); sys.exit(130)"
    )
    driver, child = start_driver(tmp_path, call, "import time; time.sleep(60)")
    driver.send_signal(number)
    out, _ = driver.communicate(timeout=20)
    assert (driver.returncode, out) == (130, f"clean {number.name}\n")
    assert not is_alive(child)


def test_run_takes_more_output_than_a_pipe_holds() -> None:
    code = "import sys; sys.stdout.write('x' * 300000); sys.stderr.write('y' * 300000)"
    done = shell.run(python(code), env=ENV, timeout=20)
    assert (len(done.stdout), len(done.stderr)) == (300000, 300000)


def test_run_passes_only_the_given_variables() -> None:
    done = shell.run(python("import os; print(os.environ.get('HOME'))"), env={"A": "1"}, timeout=20)
    assert done.stdout == "None\n"


def test_run_ends_the_whole_group_after_its_time(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess, sys, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(child.pid))\nchild.wait()"
    )
    with pytest.raises(TimeoutError, match="did not end within"):
        shell.run(python(code), env=ENV, timeout=1.5)
    wait_until(lambda: not is_alive(int(pid_file.read_text())))


def test_run_does_not_wait_for_a_grandchild_that_keeps_the_pipe() -> None:
    sleeper = "[sys.executable, '-c', 'import time; time.sleep(4)']"
    code = f"import subprocess, sys; subprocess.Popen({sleeper})"
    start = time.monotonic()
    shell.run(python(code), env=ENV, timeout=20)
    assert time.monotonic() - start < 3.5


SLEEPER = "[sys.executable, '-c', 'import time; time.sleep(60)']"
WRITER = "[sys.executable, '-c', 'while True: print(1, flush=True)']"


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(f"subprocess.Popen({SLEEPER})", id="holds-the-pipes"),
        pytest.param(f"subprocess.Popen({WRITER})", id="writes-without-end"),
        pytest.param(
            f"subprocess.Popen({SLEEPER}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)",
            id="holds-nothing",
        ),
    ],
)
def test_run_leaves_nothing_of_the_group_behind(left: str) -> None:
    code = f"import subprocess, sys\nprint('pid', {left}.pid, flush=True)"
    done = shell.run(python(code), env=ENV, timeout=20)
    pid = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("pid"))
    wait_until(lambda: not is_alive(int(pid)))


def test_run_limits_the_time_of_a_program_that_has_closed_its_outputs() -> None:
    code = "import os, time; os.closerange(0, 9); time.sleep(60)"
    with pytest.raises(TimeoutError, match="did not end within"):
        shell.run(python(code), env=ENV, timeout=1)


def test_run_waits_for_a_program_that_has_closed_its_outputs() -> None:
    code = "import os, time; os.closerange(0, 9); time.sleep(0.3); os._exit(7)"
    assert shell.run(python(code), env=ENV, timeout=20).returncode == 7


def test_run_keeps_the_end_of_an_output_without_end() -> None:
    code = "import sys; [print('x' * 10**6) for _ in range(50)]; print('end')"
    done = shell.run(python(code), env=ENV, timeout=20)
    assert KEPT_BYTES <= len(done.stdout) <= 2 * KEPT_BYTES
    assert done.stdout.endswith("x\nend\n")


@given(st.lists(st.binary(min_size=1, max_size=12) | st.sampled_from([b"\n", b"a\r", b"b\n\xff"])))
def test_lines_are_told_once_however_they_come(chunks: list[bytes]) -> None:
    told: list[str] = []
    output = Output([told.append])
    for chunk in chunks:
        output.take(chunk)
    come = b"".join(chunks)
    whole = come[: come.rfind(b"\n") + 1]
    assert told == whole.decode(errors="replace").splitlines()
    assert output.text == come.decode(errors="replace")
    output.take(b"")
    assert told == whole.decode(errors="replace").splitlines() + (
        come[len(whole) :].decode(errors="replace").splitlines()
    )


@pytest.mark.parametrize(
    ("program", "said"),
    [("/no/such/program", "no such program"), (__file__, "it is not executable")],
)
def test_missing_program_is_a_tool_error(program: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        shell.run([program], env={}, timeout=5)


def test_child_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    driver, child = start_driver(
        tmp_path, "shell.run(argv, env=dict(os.environ), timeout=60)", "import time; time.sleep(60)"
    )
    driver.kill()
    driver.communicate()
    wait_until(lambda: not is_alive(child))


def test_interrupt_ends_the_child(tmp_path: Path) -> None:
    call = (
        "try:\n    shell.run(argv, env=dict(os.environ), timeout=60)\n"
        "except KeyboardInterrupt:\n    print('clean'); sys.exit(130)"
    )
    driver, child = start_driver(tmp_path, call, "import time; time.sleep(60)")
    driver.send_signal(signal.SIGINT)
    out, _ = driver.communicate(timeout=20)
    assert (driver.returncode, out) == (130, "clean\n")
    assert not is_alive(child)


def test_supervise_passes_the_exit_code_through() -> None:
    assert shell.supervise(python("import sys; sys.exit(7)"), env=ENV) == 7
    assert shell.supervise(python("import os; os.kill(os.getpid(), 9)"), env=ENV) == 137


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_supervise_passes_a_signal_on_once(tmp_path: Path, number: signal.Signals) -> None:
    child = (
        "import signal, sys, time\ncount = []\n"
        f"signal.signal({int(number)}, lambda *_: count.append(1))\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end: time.sleep(0.05)\n"
        "sys.exit(40 + len(count))"
    )
    call = "sys.exit(shell.supervise(argv, env=dict(os.environ)))"
    driver, _ = start_driver(tmp_path, call, child)
    wait_until((tmp_path / "ready").exists)
    driver.send_signal(number)
    driver.communicate(timeout=20)
    assert driver.returncode == 41


def test_supervised_child_gets_sigterm_when_its_parent_is_killed(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    child = (
        "import signal, sys, time\n"
        f"def save(*_): pathlib.Path({str(saved)!r}).touch(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\ntime.sleep(60)"
    )
    driver, pid = start_driver(tmp_path, "shell.supervise(argv, env=dict(os.environ))", child)
    wait_until((tmp_path / "ready").exists)
    driver.kill()
    driver.communicate()
    wait_until(lambda: not is_alive(pid))
    assert saved.exists()


def test_supervise_puts_signal_handlers_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    shell.supervise(python("pass"), env=ENV)
    assert signal.getsignal(signal.SIGINT) is before
