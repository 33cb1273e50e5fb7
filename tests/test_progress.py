"""Progress as people see it, on a terminal and elsewhere."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from envdoctor.meter import Meter
from envdoctor.progress import Progress
from envdoctor.talk import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _stage(talk: Callable[[Event], None], clock: Clock) -> None:
    talk(Event(kind=EventKind.STAGE, stage="fetch", text="2 wheels"))
    for second in range(0, 65, 5):
        clock.now = second
        talk(Event(kind=EventKind.TOOL, stage="fetch", text=f"{second} of 65 MB"))
    talk(Event(kind=EventKind.DONE, stage="fetch", text="2 wheels", seconds=65.0))


def test_long_stage_tells_of_itself_each_half_minute_without_a_terminal() -> None:
    stream, clock = io.StringIO(), Clock()
    _stage(Progress(stream, clock=clock), clock)
    assert stream.getvalue().splitlines() == [
        "... fetch: 2 wheels",
        "... fetch: 2 wheels (30 s)  30 of 65 MB",
        "... fetch: 2 wheels (60 s)  60 of 65 MB",
        "ok  fetch: 2 wheels (65.0 s)",
    ]


def test_line_of_a_stage_is_rewritten_on_a_terminal() -> None:
    stream, clock = Terminal(), Clock()
    _stage(Progress(stream, clock=clock), clock)
    assert stream.getvalue().count("\n") == 1
    assert "(55 s)  55 of 65 MB" in stream.getvalue()


def test_name_of_a_file_drives_no_terminal() -> None:
    stream = io.StringIO()
    Progress(stream)(Event(kind=EventKind.NOTE, stage="verify", text="stray a\x1b[2J\n.py\udcff"))
    assert stream.getvalue() == "    stray a\\x1b[2J\\n.py\\xff\n"


@pytest.mark.parametrize(
    ("kept", "came", "seconds", "expected"),
    [
        (0, 0, 0.0, "0 of 3 wheels, 0 of 100 MB"),
        (0, 50, 10.0, "0 of 3 wheels, 50 of 100 MB, 5.0 MB/s, 10 s left"),
        (40, 20, 4.0, "0 of 3 wheels, 60 of 100 MB, 5.0 MB/s, 8 s left"),
        (0, 120, 10.0, "0 of 3 wheels, 120 of 100 MB, 12.0 MB/s, 0 s left"),
    ],
)
def test_meter_tells_rate_and_time_left(
    kept: int, came: int, seconds: float, expected: str
) -> None:
    clock = Clock()
    meter = Meter(100 * 10**6, 3, clock=clock)
    meter.kept(kept * 10**6)
    meter.came(came * 10**6)
    clock.now = seconds
    assert meter.text() == expected
