"""The folder `checkpoints` of a run: one folder per saved step, and what points at them.

A checkpoint appears under its name when all its files are on the disk, so whatever ends the process
leaves only whole ones. The files `latest` and `best` hold the name of one each; beside the folder,
`checkpoint` is a link to the latest.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import torch

from train.checkpoint import write_checkpoint
from train.checkpoint_files import (
    CONFIG_NAME,
    RANDOM_NAME,
    STATE_NAME,
    SUMS_NAME,
    TRAINING_NAME,
    WEIGHTS_NAME,
)
from train.durable import sync, write_whole
from train.metrics import json_ready

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from train.snapshot import Snapshot

_PREFIX = "step-"


class CheckpointStore:
    """Writes, finds and removes the checkpoints of a run.

    Args:
        folder: Made when something is written.
        keep: Newest checkpoints that are kept.
    """

    def __init__(self, folder: Path, *, keep: int = 1) -> None:
        self.folder = folder
        self._keep = keep

    def path(self, step: int) -> Path:
        """Return where the checkpoint after a step lies."""
        return self.folder / f"{_PREFIX}{step:08d}"

    def steps(self) -> list[int]:
        """Return the steps that were saved, rising."""
        names = (path.name for path in self.folder.glob(f"{_PREFIX}*"))
        numbers = [name.removeprefix(_PREFIX) for name in names]
        return sorted(int(number) for number in numbers if number.isdecimal())

    def pointed(self, pointer: str) -> Path | None:
        """Return the checkpoint that `latest` or `best` names; None if there is none."""
        try:
            path = self.folder / (self.folder / pointer).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return path if path.parent == self.folder and path.is_dir() else None

    def write(self, snapshot: Snapshot, *, is_best: bool) -> None:
        """Save a checkpoint, let the pointers name it, and remove the oldest.

        Raises:
            CheckpointError: The weights are not those of the format, or not finite.
            OSError: It cannot be written, for one because the disk is full; what was there stays.
        """
        temporary = self.folder / f".{_PREFIX}{snapshot.step:08d}.partial"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            _write_files(temporary, snapshot)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)  # half a checkpoint only takes space
            raise
        temporary.replace(self.path(snapshot.step))
        sync(self.folder)
        for pointer in ("latest", *(("best",) if is_best else ())):
            self._point(pointer, snapshot.step)
        self._link(snapshot.step)
        self.rotate(keep=self._keep)

    def rotate(self, *, keep: int) -> None:
        """Remove all but the newest checkpoints and the best one."""
        best = self.pointed("best")
        for step in self.steps()[:-keep]:
            path = self.path(step)
            if path != best:
                # Under its own name it would be half a checkpoint while its files go one by one.
                removed = path.replace(path.with_name(f".{path.name}.removed"))
                shutil.rmtree(removed, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a killed process left half written or half removed."""
        for pattern in ("*.partial", "*.removed"):
            for path in self.folder.glob(f".{_PREFIX}{pattern}"):
                shutil.rmtree(path, ignore_errors=True)

    def set_aside(self, step: int) -> Path:
        """Rename a broken checkpoint, so that nothing takes it for one; return its new place."""
        aside = self.path(step).with_name(f"broken-{self.path(step).name}")
        shutil.rmtree(aside, ignore_errors=True)
        return self.path(step).replace(aside)

    def _point(self, pointer: str, step: int) -> None:
        write_whole(self.folder / pointer, f"{self.path(step).name}\n")

    def _link(self, step: int) -> None:
        """Let `checkpoint` beside the folder be the newest one, for whoever serves it."""
        temporary = self.folder / ".link.partial"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(f"{self.folder.name}/{self.path(step).name}")
        temporary.replace(self.folder.parent / "checkpoint")


def damage(checkpoint: Path) -> str | None:
    """Return what is wrong with a checkpoint's files, in words; None if they are as written."""
    try:
        lines = (checkpoint / SUMS_NAME).read_text("utf-8").splitlines()
        sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
        changed = [name for name, digest in sums.items() if _sha256(checkpoint / name) != digest]
    except (OSError, ValueError) as error:
        return str(error)
    if changed:
        return f"{', '.join(changed)} not as written"
    missing = sorted({WEIGHTS_NAME, CONFIG_NAME, STATE_NAME, TRAINING_NAME, RANDOM_NAME} - {*sums})
    return f"{SUMS_NAME} lacks {', '.join(missing)}" if missing else None


def _write_files(folder: Path, snapshot: Snapshot) -> None:
    write_checkpoint(folder, weights=snapshot.weights, serving=snapshot.serving)
    for name, value in ((TRAINING_NAME, snapshot.training), (RANDOM_NAME, snapshot.random)):
        _save_tensors(folder / name, value)
    text = json.dumps(json_ready(snapshot.state), indent=2)
    (folder / STATE_NAME).write_text(text + "\n", "utf-8")
    sums = "".join(f"{_sha256(path)}  {path.name}\n" for path in _files(folder))
    (folder / SUMS_NAME).write_text(sums, "utf-8")
    for path in (*_files(folder), folder):
        sync(path)


def _save_tensors(path: Path, value: Any) -> None:
    """Write tensors and plain values.

    Raises:
        OSError: As the file system put it; torch itself reports a full disk as a bug of its own.
    """
    try:
        with path.open("wb") as stream:
            torch.save(value, stream)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.iterdir())


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
