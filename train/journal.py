"""Remember finished work line by line, so that a stopped command continues where it was.

The first line holds the settings that the work depends on; the others one finished piece each.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING, Any

from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Self


class Journal:
    """An open journal; use it in a `with` statement.

    Args:
        path: JSONL; made when it does not exist.
        settings: JSON-able values that the work depends on.

    Attributes:
        entries: What is finished, in the order in which it was.

    Raises:
        ConfigError: Another process writes it, it is no journal, or it was begun with other
            settings; names each with both values.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path = path
        self.entries: list[dict[str, Any]] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Without a buffer: what did not fit must not be tried again when the file is closed.
            self._file = path.open("ab+", buffering=0)
        except OSError as error:
            raise ConfigError([f"{path}: cannot be written: {error.strerror}"]) from error
        try:
            self._lock()
            self._load(settings)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._file.close()

    def append(self, entries: Iterable[dict[str, Any]]) -> None:
        """Add finished pieces; they are on the disk when this returns."""
        added = list(entries)
        self._write(added)
        self.entries += added

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError([f"{self._path}: another process is writing it"]) from error

    def _load(self, settings: dict[str, Any]) -> None:
        self._file.seek(0)
        whole, _, torn = self._file.read().rpartition(b"\n")
        if torn:
            # The process was killed while it wrote its last line: that piece is done again.
            self._file.truncate(len(whole) + 1 if whole else 0)
        if not whole:
            self._write([{"settings": settings}])
            return
        try:
            head, *self.entries = [json.loads(line) for line in whole.splitlines()]
            begun_with: dict[str, Any] = dict(head["settings"])
        except (ValueError, KeyError, TypeError) as error:
            problem = f"{self._path}: not a journal of this command; move it away"
            raise ConfigError([problem]) from error
        self._check(begun_with, settings)

    def _check(self, begun_with: dict[str, Any], settings: dict[str, Any]) -> None:
        # As JSON, which knows no tuples.
        asked_for = json.loads(json.dumps(settings))
        problems = [
            f"{self._path}: begun with {name} = {json.dumps(begun_with.get(name))}, asked for"
            f" {json.dumps(asked_for.get(name))}; continue with the former, or name another output"
            for name in sorted(begun_with.keys() | asked_for.keys())
            if begun_with.get(name) != asked_for.get(name)
        ]
        if problems:
            raise ConfigError(problems)

    def _write(self, entries: Iterable[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        try:
            rest = lines.encode()
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            # What was written before is whole; a line torn here is cut off at the next start.
            raise ConfigError([f"{self._path}: cannot be written: {error.strerror}"]) from error
