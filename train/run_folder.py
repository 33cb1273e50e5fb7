"""The folder of a run; imports no torch."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from train.checkpoint_files import WEIGHTS_NAME
from train.config import TrainConfig, to_builtins
from train.durable import NO_SPACE, write_whole
from train.metrics import json_ready
from train.settings import ConfigError, problems_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

README = """\
# {name}

A DFlash drafter for {target}, trained by `envdoctor train`. RUN below is this folder.

- `summary.json`: what came of it, and `"state"`: finished or interrupted. `metrics.jsonl`: the way.
  `report.html`: both as curves and tables.
- `checkpoint`: the newest drafter, in the format that engines serve. `checkpoints/` holds the ones
  before it; the files `latest` and `best` in it name one each.
- Go on after an interruption: `envdoctor train --resume RUN`
- Measure: `envdoctor train evaluate RUN --tree-budget 64`. Try: `envdoctor train generate RUN
  --prompt TEXT`. Another layout: `envdoctor train export RUN OUT --format speculators`.
- Serve with SGLang: `--speculative-algorithm DFLASH --speculative-draft-model-path RUN/checkpoint
  --speculative-num-draft-tokens {block_size}`
- Serve with vLLM: `--speculative-config '{{"method": "dflash", "model": "RUN/checkpoint",
  "num_speculative_tokens": {num_draft_tokens}}}'`

`config.json` is the run file with every default written out.
"""


class BusyError(Exception):
    """Another process works on the run; exit code 8."""


class NoSpaceError(Exception):
    """The disk is too full to begin a run; exit code 7."""


class RunFolder:
    """Where a run's files lie.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.readme = path / "README.md"
        self.baseline = path / "baseline.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.checkpoint = path / "checkpoint"
        self.summary = path / "summary.json"
        self.report = path / "report.html"

    @classmethod
    def create(cls, config: TrainConfig, path: Path | None) -> RunFolder:
        """Make the folder and note the resolved configuration in it.

        Args:
            config: The run.
            path: Where; None makes `runs/NAME-TIME` below the working folder.

        Raises:
            ConfigError: Something is there that the run would mix with or overwrite.
            NoSpaceError: The disk is full.
        """
        if path is None:
            path = Path("runs") / f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            # A run that ended before it had anything to save left only these.
            known = {folder.config.name, folder.readme.name, folder.baseline.name}
            if {entry.name for entry in path.iterdir()} - known:
                hint = f"; --resume {path} goes on with the run" if folder.config.exists() else ""
                raise ConfigError(
                    [f"--out {path}: holds files already; wanted a new or empty folder{hint}"]
                )
            folder.require_kinds()
            write_json(folder.config, to_builtins(config))
            folder.readme.write_text(readme(config), "utf-8")
        except OSError as error:
            problem = f"--out {path}: cannot be used: {error.strerror or error}"
            if error.errno in NO_SPACE:
                raise NoSpaceError(problem) from error
            raise ConfigError([problem]) from error
        return folder

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """Return the folder of an earlier run.

        Raises:
            ConfigError: It is none.
        """
        folder = cls(path)
        if folder.config.is_file() and not (path / WEIGHTS_NAME).exists():
            folder.require_kinds()
            return folder
        found = "no folder of a run" if path.exists() else "nothing there"
        inside = (one for one in path.resolve().parents if cls(one).checkpoints.is_dir())
        if path.exists() and (place := next(inside, None)):
            found = f"a part of the run {place}"
        raise ConfigError([f"--resume {path}: found {found}, wanted the folder that --out named"])

    def require_kinds(self) -> None:
        """Refuse a run in which a folder has the place of a file, before hours are spent on it.

        Raises:
            ConfigError: One line for each.
        """
        pointers = (self.checkpoints / name for name in ("latest", "best"))
        written = (self.baseline, self.metrics, self.summary, self.report, *pointers)
        problems = [f"{path}: found a folder, wanted a file" for path in written if path.is_dir()]
        if self.checkpoints.exists() and not self.checkpoints.is_dir():
            problems.append(f"{self.checkpoints}: found a file, wanted a folder")
        # As a copy has it that follows links: it would be neither replaced nor the newest.
        is_link = self.checkpoint.is_symlink() or not self.checkpoint.is_dir()
        if self.checkpoints.is_dir() and not is_link:
            problems.append(f"{self.checkpoint}: found a folder, wanted a link to the newest one")
        if problems:
            raise ConfigError([f"{problem}; move it away" for problem in problems])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against other processes.

        Raises:
            BusyError: Another one holds it.
        """
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BusyError(f"{self.path}: another process works on this run") from error
            except OSError:
                pass  # a file system without locks: nobody can be seen there
            yield
        finally:
            os.close(descriptor)

    def resolved_config(self) -> TrainConfig:
        """Read the configuration that the run was last started with; its paths are absolute.

        Raises:
            ConfigError: The file is not as a run wrote it; one line for each problem.
        """
        try:
            raw = msgspec.json.decode(self.config.read_bytes(), type=dict)
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError([f"{self.config}: cannot be read: {error}"]) from error
        if problems := problems_of(raw, TrainConfig):
            raise ConfigError([f"{self.config}: {problem}" for problem in problems])
        return msgspec.convert(raw, TrainConfig)

    def is_finished(self) -> bool:
        """Return whether the run has come to its end."""
        return self._summary().get("state") == "finished"

    def reopen(self, config: TrainConfig) -> None:
        """Note the configuration that the run goes on with; a summary of before is no longer it."""
        write_json(self.config, to_builtins(config))
        if summary := self._summary():
            write_json(self.summary, {**summary, "state": "interrupted"})

    def _summary(self) -> dict[str, Any]:
        try:
            summary = json.loads(self.summary.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return summary if isinstance(summary, dict) else {}


def readme(config: TrainConfig) -> str:
    """Return what a person who finds the folder needs to know."""
    block_size = config.draft.block_size
    return README.format(
        name=config.name,
        target=config.target.path,
        block_size=block_size,
        num_draft_tokens=block_size - 1,
    )


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file that is never seen half written."""
    write_whole(path, json.dumps(json_ready(dict(value)), indent=2) + "\n")
