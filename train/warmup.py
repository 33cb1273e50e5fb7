"""Compile all that a run needs before its first step, forward and backward, at every length.

This is the run's first step in all but its learning: the real drafter, shapes and backward pass.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import torch

from train.attention import FusedMask, allow_shapes
from train.batches import collate
from train.compile_watch import CompileWatch
from train.data import Sample
from train.features import FeatureStore
from train.fused_proof import MeasuredMask
from train.objective import draft_loss, objective_of
from train.settings import ConfigError
from train.sizes import readable
from train.windows import rows_of

if TYPE_CHECKING:
    from train.config import TrainConfig
    from train.course import Pair
    from train.fused_proof import AttentionMemory
    from train.loop import StepTaken
    from train.objective import Objective, Rows
    from train.progress import Progress


class CompileGuard:
    """Has warmed a run up, and stops it if anything is compiled later.

    Args:
        watch: Counts from before the warm-up on; sealed by this.
        attention: What attention took in the last step of the warm-up; None if it is not fused.
        num_shapes: Shapes that were warmed up.
        seconds: Wall-clock time of the warm-up.
    """

    def __init__(
        self,
        watch: CompileWatch,
        *,
        attention: AttentionMemory | None,
        num_shapes: int,
        seconds: float,
    ) -> None:
        self._watch = watch
        self._attention = attention
        self._num_shapes = num_shapes
        self._seconds = seconds
        watch.seal()

    def after_step(self, taken: StepTaken) -> None:
        """Hold a step to the warm-up; see `train.loop.AfterStep`.

        Raises:
            RecompiledError: Something was compiled since.
        """
        del taken
        self._watch.check()

    def summary(self) -> dict[str, Any]:
        """Return the part of a run's summary that says what was compiled, as JSON-able data."""
        return {
            "num_shapes": self._num_shapes,
            "warm_up_seconds": self._seconds,
            **self._watch.summary(),
            "attention": self._attention.summary() if self._attention else None,
        }


def warm_up(config: TrainConfig, *, pair: Pair, progress: Progress) -> CompileGuard:
    """Take a step at every length without learning from it, then prove that attention is fused.

    Where attention is dense nothing is compiled, and nothing is done. No random number is drawn,
    no gradient is left.

    Raises:
        ConfigError: The largest step does not fit into the device's memory.
        UnfusedAttentionError: torch is set so that attention could run unfused, or it did.
    """
    watch, started = CompileWatch(), time.monotonic()
    device, buckets = pair.target.device, config.data.buckets
    training = objective_of(config, device=device, num_anchors=config.train.num_anchors)
    held_out = objective_of(config, device=device, num_anchors=config.eval.num_anchors)
    if not isinstance(training.attention, FusedMask):
        return CompileGuard(watch, attention=None, num_shapes=0, seconds=0.0)
    num_shapes = 2 * len(buckets)  # with and without gradients
    allow_shapes(num_shapes)
    try:
        # The longest first: it is the one that may not fit.
        for number, length in enumerate(reversed(buckets)):
            progress.update(f"warming up {number}/{len(buckets)}  {length} tokens")
            rows = blank_rows(config, pair=pair, num_tokens=length)
            take_step(pair, rows=rows, objective=training)
            with torch.no_grad():
                draft_loss(pair.drafter, target=pair.target, rows=rows, objective=held_out)
        attention = measured_step(config, pair=pair, objective=training)
    except torch.OutOfMemoryError as error:
        raise ConfigError([_does_not_fit(config, device)]) from error
    attention.require_fused()
    seconds = time.monotonic() - started
    progress.say(words(attention, num_shapes=num_shapes, seconds=seconds))
    return CompileGuard(watch, attention=attention, num_shapes=num_shapes, seconds=seconds)


def blank_rows(config: TrainConfig, *, pair: Pair, num_tokens: int) -> Rows:
    """Return a micro-batch of one repeated token, made the way the training makes its own."""
    target, num_rows = pair.target, config.train.micro_batch
    samples = [
        Sample(index=row, ids=[target.eos_id] * num_tokens, supervised=[True] * num_tokens)
        for row in range(num_rows)
    ]
    batch = collate(samples, rows=num_rows, buckets=config.data.buckets, eos_id=target.eos_id)
    store = FeatureStore(target, budget_bytes=0, with_final=config.distills)
    return rows_of(batch, store.features(batch), seed=0, epoch=0)


def take_step(pair: Pair, *, rows: Rows, objective: Objective) -> None:
    """Run one micro-batch forward and backward, and forget its gradients."""
    sums = draft_loss(pair.drafter, target=pair.target, rows=rows, objective=objective)
    sums.numerator.backward()  # type: ignore[no-untyped-call]
    pair.drafter.zero_grad(set_to_none=True)


def measured_step(config: TrainConfig, *, pair: Pair, objective: Objective) -> AttentionMemory:
    """Take one step of the greatest length and return what its attention took."""
    measured = MeasuredMask(objective.attention, pair.target.device)
    rows = blank_rows(config, pair=pair, num_tokens=config.data.buckets[-1])
    take_step(pair, rows=rows, objective=dataclasses.replace(objective, attention=measured))
    return measured.memory


def words(attention: AttentionMemory, *, num_shapes: int, seconds: float) -> str:
    """Say what the warm-up found."""
    told = (
        f"a layer's attention takes {readable(attention.peak_bytes)},"
        f" its scores would take {readable(attention.dense_bytes)}"
    )
    verdict = "fused" if attention.tells else "too few keys to tell whether it is fused"
    return f"{num_shapes} shapes compiled in {seconds:.0f} s; {told}: {verdict}"


def _does_not_fit(config: TrainConfig, device: torch.device) -> str:
    memory = readable(torch.cuda.get_device_properties(device).total_memory)
    return (
        f"train.micro_batch: a step of {config.train.micro_batch} rows of {config.data.buckets[-1]}"
        f" tokens with {config.train.num_anchors} anchors does not fit into the GPU's {memory};"
        " wanted fewer rows, train.checkpoint_layers, fewer anchors or shorter data.buckets"
    )
