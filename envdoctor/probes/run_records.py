"""Read failures that earlier runs wrote down."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from envdoctor.facts import FactSet, LogRecordsFact, ProbeRecordsFact, RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envdoctor.probes.subject import Subject

_TAIL_BYTES = 4 * 1024**2
_MAX_RECORDS = 100
_MAX_CHARACTERS = 400
_FAILURE = re.compile(r"\b\w*(?:Error|Exception|Fault)\b|\bfatal\b", re.IGNORECASE)


def read_log_records(subject: Subject, facts: FactSet) -> LogRecordsFact:
    """Read lines that tell of a failure from the end of each log that was named."""
    del facts
    return LogRecordsFact(
        records=tuple(
            RunRecord(source=subject.shown(path), text=text)
            for path in subject.logs
            for text in failures_in(path)
        )
    )


def failures_in(path: Path) -> Iterator[str]:
    """Yield the last lines of a log that tell of a failure, without repetition.

    Raises:
        OSError: It cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path}: no regular file")
        stream.seek(max(0, status.st_size - _TAIL_BYTES))
        text = stream.read(_TAIL_BYTES).decode("utf-8", "replace")
    lines = (line.strip()[:_MAX_CHARACTERS] for line in text.splitlines())
    found = dict.fromkeys(line for line in lines if _FAILURE.search(line))
    yield from list(found)[-_MAX_RECORDS:]


def read_probe_records(subject: Subject, facts: FactSet) -> ProbeRecordsFact:
    """Return nothing: a reading runs no code of the environment."""
    del subject, facts
    return ProbeRecordsFact()
