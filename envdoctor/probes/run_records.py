"""Read failures that earlier runs wrote down."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, BinaryIO

from envdoctor.facts import RACE_ERRORS, FactSet, LogRecordsFact, ProbeRecordsFact, RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envdoctor.probes.subject import Subject

_TAIL_BYTES = 4 * 1024**2
_BLOCK_BYTES = 1024**2
_MAX_RECORDS = 100
_MAX_KNOWN = 5
_AROUND = 200
"""Characters kept on either side of what tells of a failure: a line of JSON may have no end."""

_FAILURE = re.compile(r"\b\w*(?:Error|Exception|Fault)\b|\bfatal\b", re.IGNORECASE)
_KNOWN = re.compile("|".join(map(re.escape, RACE_ERRORS)))
_MARKS = tuple(text.encode() for text in RACE_ERRORS)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")


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
    """Yield what a log tells of failures, without repetition.

    Those that a check knows are looked for from the first line on: a day of other runs may follow
    them. Of all others the end of the log has the last ones.

    Raises:
        OSError: It cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path}: no regular file")
        known = list(_known(stream))
        stream.seek(max(0, status.st_size - _TAIL_BYTES))
        last = dict.fromkeys(_excerpts(stream.read(_TAIL_BYTES), _FAILURE))
    yield from dict.fromkeys([*known, *list(last)[-_MAX_RECORDS:]])


def _known(stream: BinaryIO) -> Iterator[str]:
    """Yield the first lines that tell of a failure which a check knows."""
    found = dict[str, None]()
    while (block := stream.read(_BLOCK_BYTES)) and len(found) < _MAX_KNOWN:
        block += stream.readline(_BLOCK_BYTES)
        if any(mark in block for mark in _MARKS):
            found.update(dict.fromkeys(_excerpts(block, _KNOWN)))
    yield from list(found)[:_MAX_KNOWN]


def _excerpts(block: bytes, pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield lines that match, without colours, and without their ends if they are long."""
    for line in _COLOUR.sub("", block.decode("utf-8", "replace")).splitlines():
        if match := pattern.search(line):
            yield line[max(0, match.start() - _AROUND) : match.end() + _AROUND].strip()


def read_probe_records(subject: Subject, facts: FactSet) -> ProbeRecordsFact:
    """Return nothing: a reading runs no code of the environment."""
    del subject, facts
    return ProbeRecordsFact()
