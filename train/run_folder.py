"""The folder of a run; imports no torch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.config import to_builtins
from train.metrics import json_ready
from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from train.config import TrainConfig


class RunFolder:
    """Where a run's files lie.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint"
        self.summary = path / "summary.json"

    @classmethod
    def create(cls, config: TrainConfig, path: Path | None) -> RunFolder:
        """Make the folder and note the resolved configuration in it.

        Args:
            config: The run.
            path: Where; None makes `runs/NAME-TIME` below the working folder.

        Raises:
            ConfigError: Something is there that the run would mix with or overwrite.
        """
        if path is None:
            path = Path("runs") / f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            # A run that ended before it had anything to save left its configuration alone.
            if {entry.name for entry in path.iterdir()} - {folder.config.name}:
                raise ConfigError(
                    [f"--out {path}: holds files already; wanted a new or empty folder"]
                )
            write_json(folder.config, to_builtins(config))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError([f"--out {path}: cannot be used: {reason}"]) from error
        return folder


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file that is never seen half written."""
    temporary = path.with_name(f".{path.name}.partial")
    temporary.write_text(json.dumps(json_ready(dict(value)), indent=2) + "\n", "utf-8")
    temporary.replace(path)
