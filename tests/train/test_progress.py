from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from tests.train.tiny_run import write_run
from train.live import LiveProgress, drawn
from train.progress import Progress, StepView, duration, open_progress

ROOT = Path(__file__).parents[2]
RECORD = {"step": 5, "loss": 1.25, "accuracy": [0.5, 0.25], "tokens_per_second": 1234.5}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (119.4, "119 s"), (120, "2 min"), (3599, "1 h 0 min"), (11100, "3 h 5 min")],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_line_says_what_is_known() -> None:
    line = StepView(RECORD, num_steps=20, seconds_left=30).line()
    assert line == "step 5/20  loss 1.250  right at slot 1 50.0%  1234 tokens/s  30 s left"
    line = StepView({**RECORD, "mfu": 0.25}, num_steps=20, seconds_left=30).line()
    assert "  1234 tokens/s  25.0% of peak  " in line


def test_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = Progress(every_seconds=3600.0, stream=stream)
    progress.step(StepView(RECORD, num_steps=20, seconds_left=30))
    progress.step(StepView(RECORD, num_steps=20, seconds_left=29))
    progress.step(StepView({**RECORD, "step": 20}, num_steps=20, seconds_left=0))
    progress.say("done")
    progress.close()
    words = [" ".join(line.split()[:2]) for line in stream.getvalue().splitlines()]
    assert words == ["step 5/20", "step 20/20", "done"]


def test_progress_writes_few_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = Progress(every_seconds=1e9, stream=stream)
    for step in range(5):
        progress.update(f"step {step}")
    progress.say("done")
    assert stream.getvalue() == "step 0\ndone\n"


def test_progress_rewrites_its_line_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = Progress(every_seconds=1e9, stream=stream)
    progress.update("step 1")
    progress.say("done")
    assert stream.getvalue() == "\rstep 1\r      \rdone\n"


@pytest.mark.parametrize("width", [30, 40, 41, 80, 200])
def test_bar_has_a_line_of_its_own_and_nothing_is_wider_than_the_terminal(width: int) -> None:
    record = {
        **RECORD,
        "epoch": 0,
        "accuracy": [0.5] * 15,
        "estimated_acceptance_length": 1.5,
        "learning_rate": 1e-3,
        "peak_memory_bytes": 10**9,
    }
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    view = drawn(StepView(record, num_steps=20, seconds_left=30))
    lines = ["".join(part.text for part in line) for line in console.render_lines(view)]
    assert lines[0].strip()
    assert not re.search(r"\w", lines[0])
    assert lines[1].split()[:4] == ["step", "5", "of", "20,"]
    assert max(map(len, lines)) <= width


def output_on_a_terminal(folder: Path) -> str:
    """Run a training whose stderr is a terminal, and return what it wrote there."""
    main, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "train", "--config", write_run(folder), "--out", folder / "out"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"},
        stderr=child,
    )
    os.close(child)
    written = b""
    try:
        while chunk := os.read(main, 65536):
            written += chunk
    except OSError:
        pass  # how Linux says that the other side is closed
    finally:
        os.close(main)
    assert process.wait(timeout=60) == 0
    return written.decode()


def test_terminal_shows_the_steps_and_keeps_the_closing_lines(tmp_path: Path) -> None:
    written = output_on_a_terminal(tmp_path)
    assert "\x1b[" in written
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert "right by slot" in plain
    assert "held-out loss" in plain
    # The cursor is there when it ends: the last word on it is that it shall be shown.
    assert written.rfind("\x1b[?25h") >= written.rfind("\x1b[?25l")


@pytest.mark.parametrize(("term", "kind"), [("xterm", LiveProgress), ("dumb", Progress)])
def test_view_is_the_fullest_that_the_terminal_can_show(
    monkeypatch: pytest.MonkeyPatch, term: str, kind: type[Progress]
) -> None:
    main, child = pty.openpty()
    monkeypatch.setenv("TERM", term)
    with os.fdopen(child, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with closing(open_progress(every_seconds=1.0)) as progress:
            assert type(progress) is kind
    os.close(main)
