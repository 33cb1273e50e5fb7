"""Saves checkpoints while the training goes on."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from train.durable import NO_SPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from train.checkpoint_store import CheckpointStore
    from train.loop import StepTaken
    from train.snapshot import Camera, Snapshot


class SaveError(Exception):
    """The end of a training could not be saved; exit code 7."""


class Saver:
    """Takes a copy after every few steps, and writes it in the background.

    Where the disk is full, all but the newest checkpoint and the best one make room. When a
    checkpoint cannot be written even so, those before it stay, the training goes on, and the next
    one is tried; only at the end of a training that is an error.

    Args:
        store: Where to.
        camera: Copies the training; a step that its `best` names is saved as well.
        every_steps: Optimizer steps between two checkpoints.
        say: Told of a checkpoint that could not be written.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        camera: Camera,
        every_steps: int,
        say: Callable[[str], None],
    ) -> None:
        self._store = store
        self._every_steps = every_steps
        self._camera = camera
        self._say = say
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running: tuple[int, Future[OSError | None]] | None = None

    def __call__(self, taken: StepTaken) -> None:
        """Save if it is time: every few steps, at the best so far, and after the last.

        Raises:
            CheckpointError: The weights are not finite.
            SaveError: The last one could not be written.
        """
        is_best = self._camera.best.step == taken.step
        if taken.is_last:
            self.save_last(taken.step)
        elif is_best or taken.step % self._every_steps == 0:
            self._wait()  # for the former one: two copies would need twice the memory
            snapshot = self._camera.take(taken.step)
            self._running = (
                taken.step,
                self._writer.submit(self._write, snapshot, is_best=is_best),
            )

    def save_last(self, step: int) -> None:
        """Save where the training ends, and wait for it.

        Raises:
            CheckpointError: The weights are not finite.
            SaveError: It could not be written.
        """
        self._wait()
        is_best = self._camera.best.step == step
        snapshot = self._camera.take(step)
        try:
            self._tell_room_made(step, self._write(snapshot, is_best=is_best))
        except OSError as error:
            left = self.newest_words()
            raise SaveError(f"step {step} could not be saved: {error}; {left}") from error

    def newest_words(self) -> str:
        """Wait for what is being written, and say which checkpoint is the newest."""
        self._wait()
        steps = self._store.steps()
        return f"the newest checkpoint is of step {steps[-1]}" if steps else "nothing is saved"

    def _wait(self) -> None:
        """Wait for the checkpoint that is being written, and tell if it could not be."""
        if self._running is None:
            return
        step, running = self._running
        self._running = None
        try:
            self._tell_room_made(step, running.result())
        except OSError as error:
            self._say(
                f"warning: step {step} could not be saved: {error}; of the earlier checkpoints stay"
                f" the newest and the best; trying again after {self._every_steps} steps"
            )

    def _write(self, snapshot: Snapshot, *, is_best: bool) -> OSError | None:
        """Write a checkpoint, and return the error of a full disk where older ones made room."""
        try:
            self._store.write(snapshot, is_best=is_best)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._store.rotate(keep=1)
            self._store.write(snapshot, is_best=is_best)
            return error
        return None

    def _tell_room_made(self, step: int, error: OSError | None) -> None:
        if error is not None:
            self._say(f"warning: step {step}: {error}; older checkpoints were removed to save it")
