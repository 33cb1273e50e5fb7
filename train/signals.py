"""SIGTERM and Ctrl-C: once means finish the step and save, twice means leave at once."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from train.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class InterruptedRunError(BaseException):
    """A signal arrived where there is nothing to finish; no handler of errors may swallow it."""


class StopSignal:
    """Whether the user asked to stop.

    Attributes:
        requested: True after the first signal.
    """

    def __init__(self) -> None:
        self.requested = False
        self._finishes_step = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT; the former handlers are back afterwards."""
        former = {one: signal.signal(one, self._handle) for one in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for one, handler in former.items():
                signal.signal(one, handler)

    @contextmanager
    def finishing_steps(self) -> Iterator[None]:
        """Only note the first signal in here: the caller looks at `requested` after each step."""
        self._finishes_step = True
        try:
            yield
        finally:
            self._finishes_step = False

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if self.requested:
            os._exit(ExitCode.INTERRUPTED)
        self.requested = True
        if not self._finishes_step:
            raise InterruptedRunError
