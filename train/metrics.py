"""Metrics of a run as JSON lines, each written at once, so that a killed run keeps them."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from train.durable import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType


def json_ready(value: Any) -> Any:
    """Return the value with nan and infinities, which JSON lacks, as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return value


def keep_steps(path: Path, *, last: int) -> None:
    """Remove the records of later steps, which a resumed run writes anew, and a half written one.

    Args:
        path: The file; nothing happens when it is missing.
        last: Optimizer steps that were taken where the run goes on.
    """
    if not path.exists():
        return
    kept = [line for line in path.read_bytes().splitlines() if _is_kept(line, last)]
    write_whole(path, b"".join(line + b"\n" for line in kept).decode())


def _is_kept(line: bytes, last: int) -> bool:
    try:
        return bool(json.loads(line).get("step", 0) <= last)
    except (ValueError, AttributeError):
        return False


class MetricsWriter:
    """Appends records to a file, one JSON object a line, whole or not at all.

    Records that cannot be written, for one because the disk is full, are kept until they can.

    Args:
        path: The file; made when missing.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._waiting = b""

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record, and hand it to the operating system if that takes it."""
        self._waiting += json.dumps(json_ready(dict(record))).encode() + b"\n"
        with suppress(OSError):
            self._flush()

    def _flush(self) -> None:
        size = self._file.seek(0, os.SEEK_END)
        try:
            rest = memoryview(self._waiting)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(size)  # half a record is none
            raise
        self._waiting = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._file:
            if error is None:
                self._flush()
