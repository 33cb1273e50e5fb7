"""What a drafter is worth on held-out data: its loss, and real decoding beside the target alone."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from train.acceptance import (
    Acceptance,
    is_lossless,
    standard_errors_above,
    tokens_per_second,
)
from train.batches import collate, epoch_batches
from train.course import Pair
from train.drafting import Alone, Chain
from train.features import FeatureStore
from train.measure import Meter, Terms
from train.objective import draft_loss, objective_of
from train.slot_weights import DecayedWeights
from train.target import computing_in
from train.trained import Prompt
from train.windows import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.config import TrainConfig
    from train.data import Sample
    from train.decode import Decoding
    from train.drafter import Drafter
    from train.drafting import Strategy
    from train.loss import LossSums
    from train.measure import Measured
    from train.progress import Progress
    from train.target import Target


class Evaluation:
    """Measures drafters of one target on the same held-out data.

    Args:
        config: The run.
        target: The frozen target.
        samples: Conversations for the held-out loss, at least one.
        prompts: Token ids of the prompts to decode.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        target: Target,
        samples: Sequence[Sample],
        prompts: Sequence[Sequence[int]],
    ) -> None:
        self.config = config
        self._target = target
        self._samples = samples
        self._prompts = [Prompt(str(i), list(ids)) for i, ids in enumerate(prompts, start=1)]
        self._plain_few: list[Decoding] | None = None
        # Apart from the training's: samples are known by their index, and which are kept must not
        # depend on what was measured before, or a resumed run would read other last bits.
        self._store = FeatureStore(target, budget_bytes=config.train.cache_features_bytes)

    def held_out_loss(self, drafter: Drafter, *, progress: Progress) -> dict[str, Any]:
        """Return `held_out_figures`, and tell the loss."""
        figures = self.held_out_figures(drafter)
        progress.say(f"held-out loss {figures['loss']:.3f} nats")
        return figures

    def held_out_figures(self, drafter: Drafter) -> dict[str, Any]:
        """Return loss, accuracies and estimated acceptance length on anchors that never change."""
        sums = held_out_sums(
            self.config, pair=Pair(self._target, drafter), samples=self._samples, store=self._store
        )
        return {
            "loss": sums.loss,
            "accuracy": sums.accuracy,
            "estimated_acceptance_length": sums.acceptance_length,
        }

    def decode_few(self, drafter: Drafter, *, progress: Progress) -> list[Decoding]:
        """Decode the first `eval.decode_prompts` prompts, greedily."""
        return self._few(Chain(drafter), progress=progress, name="drafter in training")

    def plain_few(self, *, progress: Progress) -> list[Decoding]:
        """Return what the target alone says to those prompts; decoded once."""
        if self._plain_few is None:
            self._plain_few = self._few(Alone(), progress=progress, name="target alone")
        return self._plain_few

    def _few(self, strategy: Strategy, *, progress: Progress, name: str) -> list[Decoding]:
        prompts = self._prompts[: self.config.eval.decode_prompts]
        meter = self._meter(prompts, num_timed=0, progress=progress)
        with computing_in(self._target, self.config.eval.dtype):
            return meter.measure(strategy, name=name).answers

    def decode(self, drafter: Drafter | None, *, progress: Progress, name: str) -> Measured:
        """Decode all prompts greedily side by side, and the first again for the speed.

        Args:
            drafter: Proposes; None decodes with the target alone.
            progress: Told how far it is.
            name: What is decoded, for the progress line.
        """
        num_timed = self.config.eval.timed_prompts
        meter = self._meter(self._prompts, num_timed=num_timed, progress=progress)
        strategy = Alone() if drafter is None else Chain(drafter)
        with computing_in(self._target, self.config.eval.dtype):
            return meter.measure(strategy, name=name)

    def _meter(self, prompts: Sequence[Prompt], *, num_timed: int, progress: Progress) -> Meter:
        terms = Terms(self.config.eval.max_new_tokens, self.config.eval.batch, num_timed)
        return Meter(self._target, prompts, terms=terms, progress=progress)


def compare(
    plain: Measured, *, untrained: Measured, trained: Measured, block_size: int
) -> dict[str, Any]:
    """Return the decoding part of a run's summary.

    Acceptance and losslessness are those of all prompts, decoded side by side; speeds are those of
    the first `num_timed_prompts`, decoded one at a time, and nan where there are none.

    Args:
        plain: The target alone.
        untrained: With the drafter as it was before the training.
        trained: With the drafter that was saved; same prompts in the same order.
        block_size: Slots per block.
    """
    before = Acceptance.of(untrained.answers, block_size=block_size)
    after = Acceptance.of(trained.answers, block_size=block_size)
    speeds = {
        "plain": tokens_per_second(plain.timed),
        "untrained": tokens_per_second(untrained.timed),
        "trained": tokens_per_second(trained.timed),
    }
    return {
        "lossless": all(is_lossless(one.answers, plain.answers) for one in (untrained, trained)),
        "num_prompts": len(plain.answers),
        "num_tokens": sum(len(one.tokens) for one in plain.answers),
        "block_size": block_size,
        "untrained": asdict(before),
        "trained": asdict(after),
        "standard_errors_above_untrained": standard_errors_above(after, before),
        "num_timed_prompts": len(plain.timed),
        "tokens_per_second": speeds,
        "speed_up": speeds["trained"] / speeds["plain"],
    }


@torch.no_grad()
def held_out_sums(
    config: TrainConfig, *, pair: Pair, samples: Sequence[Sample], store: FeatureStore
) -> LossSums:
    """Return the loss sums over the held-out samples, on anchors that never change.

    Always of the decayed cross-entropy, so that runs of different losses can be compared; weights
    of D-PACE would differ from one checkpoint of a run to the next.

    Args:
        config: The run.
        pair: Target and drafter.
        samples: The held-out data; at least one.
        store: Keeps the target's states from one call to the next.
    """
    rows, buckets = config.train.micro_batch, config.data.buckets
    objective = dataclasses.replace(
        objective_of(config, device=pair.target.device, num_anchors=config.eval.num_anchors),
        weights=DecayedWeights(config.gamma),
        temperature=None,
    )
    totals = []
    for group in epoch_batches(samples, buckets=buckets, rows=rows, order=None):
        batch = collate(group, rows=rows, buckets=buckets, eos_id=pair.target.eos_id)
        # Seed and epoch are constants: another run of another seed meets the same blocks.
        batch_rows = rows_of(batch, store.features(batch), seed=0, epoch=0)
        sums = draft_loss(pair.drafter, target=pair.target, rows=batch_rows, objective=objective)
        totals.append(sums.detach())
    return sum(totals[1:], start=totals[0])
