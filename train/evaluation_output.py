"""Where the figures of an evaluation go as they come: a file, and standard output."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Self

from train.evaluation import FINISHED
from train.evaluation_text import closing_lines, head_lines, run_lines
from train.metrics import json_ready
from train.run_folder import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import TracebackType


class EvaluationOutput:
    """Writes what is new in each document; at the end, whatever ends it, what is left.

    The file holds all that was measured at any time. Text is written run by run; JSON to standard
    output is one document, and so comes at the end.

    Args:
        file: Gets every document in the place of the one before; None writes none.
        as_json: Whether standard output gets JSON instead of text.
    """

    def __init__(self, *, file: Path | None, as_json: bool) -> None:
        self._file = file
        self._as_json = as_json
        self._report: Mapping[str, Any] | None = None
        self._num_told = 0

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write what has not been written yet, also where an error or a signal ends it."""
        if self._report is None:
            return
        if self._as_json:
            _tell([json.dumps(json_ready(dict(self._report)), indent=2)])
        else:
            for run in self._report["runs"][self._num_told :]:
                if run["ways"]:
                    _tell(run_lines(run))
            _tell(closing_lines(self._report))
        self._write()

    def take(self, report: Mapping[str, Any]) -> None:
        """Write a document: the figures of all that was measured so far."""
        is_first, self._report = self._report is None, report
        self._write()
        if self._as_json:
            return
        if is_first:
            _tell(head_lines(report))
        for run in report["runs"][self._num_told :]:
            if run["state"] == FINISHED:
                _tell(run_lines(run))
                self._num_told += 1

    def _write(self) -> None:
        if self._file and self._report:
            write_json(self._file, self._report)


def _tell(lines: Iterable[str]) -> None:
    # At once: a person waits for each run, and after a signal there may be no time left.
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
