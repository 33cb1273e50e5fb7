"""One run: load, measure, train, save, measure again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from train.attention import DenseAttentionTooLargeError, UnfusedAttentionError
from train.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from train.compile_watch import RecompiledError
from train.course import Course
from train.evaluate import Evaluation, compare
from train.inputs import load
from train.loop import train
from train.machine import Stopwatch
from train.metrics import MetricsWriter
from train.progress import Progress
from train.run_folder import write_json
from train.selftest import SelfTestError
from train.selftest_drafting import check_run
from train.settings import ConfigError
from train.summary import closing_lines, header
from train.warmup import warm_up

if TYPE_CHECKING:
    from train.config import TrainConfig
    from train.inputs import Inputs
    from train.ledger import Outcome, StepReport
    from train.run_folder import RunFolder
    from train.signals import StopSignal
    from train.warmup import CompileGuard

SELF_TEST_FAILURES = (SelfTestError, UnfusedAttentionError, RecompiledError, CheckpointError)
"""What `execute` raises when something does not hold that a training relies on; exit code 1."""


def execute(config: TrainConfig, *, folder: RunFolder, stop: StopSignal) -> bool:
    """Run all phases and fill the folder, which holds nothing but the configuration.

    Returns:
        False when the user stopped it; what was learned until then is saved.

    Raises:
        ConfigError: Target or data cannot be used.
        SelfTestError: The target or the drafting does not behave as the training needs.
        UnfusedAttentionError: Attention would hold, or held, all its scores.
    """
    watch = Stopwatch()
    progress = Progress(every_seconds=config.log.every_seconds)
    progress.say(f"{config.name}: loading {config.target.path}")
    with watch.phase("load"):
        inputs = load(config)
    pair = inputs.pair
    with watch.phase("warm_up"):
        guard = warm_up(config, pair=pair, progress=progress)
        check_run(config, pair=pair, samples=inputs.held_out.samples)
    evaluation = Evaluation(
        config, target=pair.target, samples=inputs.held_out.samples, prompts=inputs.prompts
    )
    with watch.phase("evaluate_before"):
        losses = {"before": evaluation.held_out_loss(pair.drafter, progress=progress)}
        plain = evaluation.decode(None, progress=progress, name="target alone")
        untrained = evaluation.decode(pair.drafter, progress=progress, name="untrained drafter")
    with watch.phase("train"):
        outcome = train_and_save(
            config, inputs=inputs, folder=folder, stop=stop, progress=progress, guard=guard
        )
    results: dict[str, Any] = {"training": outcome.summary(), "held_out": losses}
    if not stop.requested:
        # What is measured is what was saved: rounded to bfloat16 and read back.
        saved = load_checkpoint(folder.checkpoint).to(pair.target.device)
        with watch.phase("evaluate_after"):
            losses["after"] = evaluation.held_out_loss(saved, progress=progress)
            trained = evaluation.decode(saved, progress=progress, name="trained drafter")
        results["decoding"] = compare(
            plain, untrained=untrained, trained=trained, block_size=config.draft.block_size
        )
    results["compilation"] = guard.summary()
    summary = header(config, inputs=inputs, watch=watch, finished=not stop.requested) | results
    write_json(folder.summary, summary)
    for line in closing_lines(summary, folder):
        progress.say(line)
    return not stop.requested


def train_and_save(
    config: TrainConfig,
    *,
    inputs: Inputs,
    folder: RunFolder,
    stop: StopSignal,
    progress: Progress,
    guard: CompileGuard,
) -> Outcome:
    """Train, and save what was learned, also when the user or the guard stops it.

    Raises:
        ConfigError: The device needs dense attention, and the blocks do not fit.
        RecompiledError: Something was compiled in the middle of the training.
    """
    target = inputs.pair.target
    save = partial(
        save_checkpoint,
        folder=folder.checkpoint,
        bos_token_id=target.tokenizer.bos_token_id,
        eos_token_id=target.eos_id,
    )
    with MetricsWriter(folder.metrics) as metrics, stop.finishing_steps():
        report = partial(report_step, metrics=metrics, progress=progress)
        course = Course.of(config, pair=inputs.pair, samples=inputs.training.samples)
        try:
            outcome = train(course, report=report, stop=stop, after_step=(guard.after_step,))
        except DenseAttentionTooLargeError as error:
            raise ConfigError([f"train.num_anchors: {error}"]) from error
        except RecompiledError:
            save(course.trained_drafter)
            raise
        save(course.trained_drafter)
    return outcome


def report_step(step: StepReport, *, metrics: MetricsWriter, progress: Progress) -> None:
    """Write a line of metrics and show it."""
    record = step.record()
    metrics.write(record)
    progress.update(
        f"step {step.step}/{step.num_steps}  loss {record['loss']:.3f}"
        f"  right at slot 1 {record['accuracy'][0]:.1%}"
        f"  {record['tokens_per_second']:.0f} tokens/s"
        f"  {step.seconds_left:.0f} s left"
    )
