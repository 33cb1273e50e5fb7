"""The training phase of a run: begin or go on, train, and save on the way."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from train.attention import DenseAttentionTooLargeError
from train.best import Best
from train.checkpoint_store import CheckpointStore
from train.compile_watch import RecompiledError
from train.contract import contract_of
from train.course import Course
from train.gauge import gauge_of
from train.ledger import Ledger, NotFiniteError
from train.loop import train
from train.loop_evaluation import LoopEvaluation
from train.machine import package_versions
from train.metrics import keep_steps
from train.progress import StepView
from train.resume import changes, find_start, restore
from train.saver import Saver
from train.settings import ConfigError
from train.sinks import open_sinks
from train.snapshot import Camera

if TYPE_CHECKING:
    from collections.abc import Iterator

    from train.config import TrainConfig
    from train.gauge import Gauge
    from train.held_out import Evaluation
    from train.inputs import Inputs
    from train.ledger import Outcome, StepReport
    from train.progress import Progress
    from train.resume import Start
    from train.run_folder import RunFolder
    from train.session import Session
    from train.sinks import Sink
    from train.warmup import CompileGuard


def train_and_save(
    start: Start,
    *,
    inputs: Inputs,
    session: Session,
    guard: CompileGuard,
    evaluation: Evaluation,
) -> Outcome:
    """Train from the newest checkpoint on, or from the start, until the end or until stopped.

    Raises:
        ConfigError: The plan ends before the checkpoint; or the device needs dense attention, and
            the blocks do not fit.
        NotFiniteError: A gradient is nan or infinite; weights from before that stay saved.
        RecompiledError: Something was compiled in the middle of the training; what was learned
            until then is saved.
        SaveError: The end of the training could not be saved.
    """
    config, folder, progress = evaluation.config, session.folder, session.progress
    course = Course.of(
        config,
        pair=inputs.pair,
        samples=inputs.training.samples,
        first_step=start.step,
        origin=start.origin,
    )
    reopen(folder, course)
    with (
        open_sinks(config, folder, first_step=start.step) as metrics,
        session.stop.finishing_steps(),
    ):
        ledger = Ledger(
            course.plan.num_steps,
            every_steps=config.log.every_steps,
            report=partial(report_step, metrics=metrics, progress=progress, gauge=gauge_of(course)),
        )
        best = Best(config.checkpoint.best_on)
        restore(course, start, ledger=ledger, best=best)
        for line in resumed_lines(course, start):
            progress.say(line)
        camera = Camera(course, ledger, best, start.contract, session.terms.receipt_id)
        store = CheckpointStore(folder.checkpoints, keep=config.checkpoint.keep)
        every_steps = config.checkpoint.every_steps
        saver = Saver(store, camera=camera, every_steps=every_steps, say=progress.say)
        evaluate = LoopEvaluation(
            evaluation,
            drafter=course.trained_drafter,
            best=best,
            metrics=metrics,
            progress=progress,
        )
        after_step = (guard.after_step, evaluate, saver)
        with ended_early(saver, ledger):
            train(course, ledger=ledger, stop=session.stop, after_step=after_step)
    return ledger.outcome()


def start_of(config: TrainConfig, *, inputs: Inputs, session: Session) -> Start:
    """Find where the run goes on; what cannot go on is refused before anything takes time.

    Raises:
        ConfigError: What is there now does not fit the newest checkpoint.
    """
    return find_start(
        CheckpointStore(session.folder.checkpoints),
        contract_of(config, inputs),
        allow_data_change=session.terms.allow_data_change,
        say=session.progress.say,
    )


@contextmanager
def ended_early(saver: Saver, ledger: Ledger) -> Iterator[None]:
    """Turn what ends a training early into what its user can do something about.

    Raises:
        ConfigError: The device needs dense attention, and the blocks do not fit.
        RecompiledError: Something was compiled in the middle; what was learned is saved.
        NotFiniteError: The training went astray; says which checkpoint is from before that.
    """
    try:
        yield
    except DenseAttentionTooLargeError as error:
        raise ConfigError([f"train.num_anchors: {error}"]) from error
    except RecompiledError:
        saver.save_last(ledger.outcome().steps)
        raise
    except NotFiniteError as error:
        raise NotFiniteError(f"{error}; {saver.newest_words()}") from error


def reopen(folder: RunFolder, course: Course) -> None:
    """Bring the folder to where the training goes on.

    Raises:
        ConfigError: The plan ends before where the run already is; nothing is changed then.
    """
    taken, plan = course.first_step, course.plan
    if taken > plan.num_steps:
        found = f"{plan.epochs} (train.max_steps: {plan.max_steps}), {plan.num_steps} steps in all"
        wanted = f"at least the {taken} steps that the run has taken"
        raise ConfigError([f"train.epochs: found {found}, wanted {wanted}"])
    folder.reopen(course.config)
    keep_steps(folder.metrics, last=course.first_step)


def resumed_lines(course: Course, start: Start) -> list[str]:
    """Return what a person should know of a run that goes on."""
    if start.checkpoint is None:
        return []
    lines = [f"going on from {start.checkpoint.name} of {course.plan.num_steps} steps"]
    now = msgspec.json.decode(msgspec.json.encode(course.config))  # as JSON holds it
    settings = changes(now, start.state["config"])
    if start.state["num_steps"] != course.plan.num_steps:
        settings.append(
            f"the learning rate follows {course.plan.num_steps} steps from here, not"
            f" {start.state['num_steps']}"
        )
    versions = changes(package_versions(), start.state["versions"])
    lines += [f"changed since then: {one}" for one in settings]
    lines += [f"warning: another version than before: {one}" for one in versions]
    return lines


def report_step(step: StepReport, *, metrics: Sink, progress: Progress, gauge: Gauge) -> None:
    """Write a line of metrics and show it."""
    record = step.record()
    record |= gauge.reading(record["tokens_per_second"])
    metrics.write(record)
    progress.step(StepView(record, step.num_steps, step.seconds_left))
