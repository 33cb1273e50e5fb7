"""What a program said on its standard error, and which lines of that tell how it ended."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Literal

from envdoctor.facts import ProbeRun
from envdoctor.urls import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STEP = "probe-step: "
_FATAL = "Fatal Python error: "
_KEPT_LINES = 10_000
_LINE_CHARACTERS = 4_000
_LOG_LINES = 40
_REASON_LINES = 4
_REASON_CHARACTERS = 500
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b(:|$)")


class Heard:
    """The last lines that a program says.

    Args:
        tell: Takes each step that it announces; None if nobody watches.
    """

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self._lines = deque[str](maxlen=_KEPT_LINES)
        self._tell = tell

    def line(self, text: str, /) -> None:
        """Take a line, and keep it without credentials."""
        line = mask(text[:_LINE_CHARACTERS])
        self._lines.append(line)
        if self._tell and line.startswith(_STEP):
            self._tell(line.removeprefix(_STEP))

    def waiting(self, pid: int, /) -> None:
        """Wait as well."""

    @property
    def reason(self) -> str:
        """What an interpreter says of the exception that ended it; else the last line."""
        lines = [line for line in self._lines if line.strip() and not line.startswith(_STEP)]
        raised = [number for number, line in enumerate(lines) if _RAISED.match(line)]
        begin = raised[-1] if raised else len(lines) - 1
        return " ".join(lines[max(begin, 0) :][:_REASON_LINES])[:_REASON_CHARACTERS]

    def run(
        self, status: Literal["failed", "crashed", "timed_out"], reason: str, *, seconds: float
    ) -> ProbeRun:
        """Return the run of a program that did not pass, with its last step and telling lines."""
        steps = [line.removeprefix(_STEP) for line in self._lines if line.startswith(_STEP)]
        return ProbeRun(
            status=status,
            seconds=round(seconds, 3),
            reason=reason,
            step=steps[-1] if steps else "",
            log="\n".join(_telling(list(self._lines))),
        )


def _telling(lines: Sequence[str]) -> Sequence[str]:
    """Return where a crash was told of, with the innermost call first; else the end."""
    fatal = next((at for at, line in enumerate(lines) if line.startswith(_FATAL)), None)
    return lines[-_LOG_LINES:] if fatal is None else lines[fatal:][:_LOG_LINES]
