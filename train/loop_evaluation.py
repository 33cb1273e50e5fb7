"""Evaluation while the training goes on: held-out loss, and a few prompts decoded for real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from train.acceptance import Acceptance, is_lossless

if TYPE_CHECKING:
    from train.best import Best
    from train.drafter import Drafter
    from train.held_out import Evaluation
    from train.loop import StepTaken
    from train.progress import Progress
    from train.sinks import Sink


class LoopEvaluation:
    """Measures the drafter after every few steps; see `train.loop.AfterStep`.

    Draws no random number, and leaves drafter and target as they were. Good training metrics say
    little: that the drafter is of use when it is served only decoding shows.

    Args:
        evaluation: Measures; its configuration says how often.
        drafter: The one in training.
        best: Offered what is found.
        metrics: Takes a record of the kind `evaluation`.
        progress: Told the figures.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        *,
        drafter: Drafter,
        best: Best,
        metrics: Sink,
        progress: Progress,
    ) -> None:
        self._evaluation = evaluation
        self._drafter = drafter
        self._best = best
        self._metrics = metrics
        self._progress = progress

    def __call__(self, taken: StepTaken) -> None:
        """Measure if it is time; and at the end, so that the last step competes with the others."""
        if not self._is_due(taken):
            return
        self._drafter.eval()
        try:
            figures = self._figures()
        finally:
            self._drafter.train()
        scores = {key: value for key, value in figures.items() if isinstance(value, float)}
        self._best.offer(taken.step, scores)
        is_best = self._best.step == taken.step
        self._metrics.write(
            {"kind": "evaluation", "step": taken.step, "is_best": is_best, **figures}
        )
        self._progress.say(words(taken.step, figures) + (", the best so far" if is_best else ""))

    def _is_due(self, taken: StepTaken) -> bool:
        every_steps = self._evaluation.config.eval.every_steps
        if not every_steps:
            return False
        if taken.step == taken.num_steps:
            return self._best.step is not None or taken.step % every_steps == 0
        # A user who stops the run waits for it.
        return taken.step % every_steps == 0 and not taken.is_last

    def _figures(self) -> dict[str, Any]:
        evaluation = self._evaluation
        held_out = evaluation.held_out_figures(self._drafter)
        figures = {
            "held_out_loss": held_out["loss"],
            "accuracy": held_out["accuracy"],
            "estimated_acceptance_length": held_out["estimated_acceptance_length"],
        }
        answers = evaluation.decode_few(self._drafter, progress=self._progress)
        if not answers:
            return figures
        acceptance = Acceptance.of(answers, block_size=self._drafter.config.block_size)
        return {
            **figures,
            "acceptance_length": acceptance.mean,
            "acceptance_length_pooled": acceptance.pooled,
            "per_position": acceptance.per_position,
            "num_prompts": acceptance.num_prompts,
            "lossless": is_lossless(answers, evaluation.plain_few(progress=self._progress)),
        }


def words(step: int, figures: dict[str, Any]) -> str:
    """Put the figures into a line."""
    line = (
        f"step {step}: held-out loss {figures['held_out_loss']:.3f} nats, estimated acceptance"
        f" length {figures['estimated_acceptance_length']:.3f}"
    )
    if "acceptance_length" not in figures:
        return line
    number = figures["num_prompts"]
    prompts = "1 prompt" if number == 1 else f"{number} prompts"
    return (
        f"{line}, decoded {figures['acceptance_length']:.3f} on {prompts}"
        f"{'' if figures['lossless'] else ', NOT equal to plain decoding'}"
    )
