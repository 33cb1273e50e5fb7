"""One run: load, measure, train, measure again."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from train.baseline import measure_once
from train.checkpoint import load_checkpoint
from train.held_out import Evaluation, compare
from train.inputs import load
from train.machine import Stopwatch
from train.progress import open_progress
from train.report import write_report
from train.run_folder import write_json
from train.selftest_drafting import check_run
from train.session import Session
from train.summary import closing_lines, header
from train.training import start_of, train_and_save
from train.warmup import warm_up

if TYPE_CHECKING:
    from train.baseline import Baseline
    from train.config import TrainConfig
    from train.course import Pair
    from train.inputs import Inputs
    from train.progress import Progress
    from train.run_folder import RunFolder
    from train.session import StartTerms
    from train.signals import StopSignal


def execute(config: TrainConfig, *, folder: RunFolder, stop: StopSignal, terms: StartTerms) -> bool:
    """Run all phases, from the folder's newest checkpoint on if it has one, and fill the folder.

    Returns:
        False when the user stopped it; what was learned until then is saved.

    Raises:
        ConfigError: Target or data cannot be used, or are not those of the checkpoint.
        SelfTestError: The target or the drafting does not behave as the training needs.
        UnfusedAttentionError: Attention would hold, or held, all its scores.
        RecompiledError: Something was compiled in the middle of the training.
        SaveError: The end of the training could not be saved.
    """
    with closing(open_progress(every_seconds=config.log.every_seconds)) as progress:
        return run_phases(config, Session(folder, stop, progress, terms))


def run_phases(config: TrainConfig, session: Session) -> bool:
    """Load, measure, train, measure again, and write the summary; see `execute`."""
    watch, folder, progress = Stopwatch(), session.folder, session.progress
    progress.say(f"{config.name}: loading {config.target.path}")
    with watch.phase("load"):
        inputs = load(config, say=progress.say)
    pair = inputs.pair
    tell_dropped(inputs, progress)
    start = start_of(config, inputs=inputs, session=session)
    with watch.phase("warm_up"):
        guard = warm_up(config, pair=pair, progress=progress)
        check_run(config, pair=pair, samples=inputs.held_out.samples)
    evaluation = Evaluation(
        config, target=pair.target, samples=inputs.held_out.samples, prompts=inputs.prompts
    )
    with watch.phase("evaluate_before"):
        before = measure_once(
            folder.baseline, config=config, inputs=inputs, evaluation=evaluation, progress=progress
        )
    with watch.phase("train"):
        outcome = train_and_save(
            start, inputs=inputs, session=session, guard=guard, evaluation=evaluation
        )
    results: dict[str, Any] = {
        "training": outcome.summary(),
        "held_out": {"before": before.held_out},
        "compilation": guard.summary(),
    }
    # Until all is measured the run is one to be resumed, whatever ends the process.
    summary = header(config, inputs=inputs, watch=watch, finished=False) | results
    write_json(folder.summary, summary)
    stopped = session.stop.requested
    if not stopped:
        with watch.phase("evaluate_after"):
            results |= results_after(before, evaluation=evaluation, session=session, pair=pair)
        summary = header(config, inputs=inputs, watch=watch, finished=True) | results
        write_json(folder.summary, summary)
    write_report(folder, summary)
    for line in closing_lines(summary, folder):
        progress.say(line)
    return not stopped


def tell_dropped(inputs: Inputs, progress: Progress) -> None:
    """Say how many rows of the data are of no use, and why."""
    for key, dataset in (("train", inputs.training), ("held_out", inputs.held_out)):
        if words := dataset.dropped_words:
            progress.say(f"data.{key}: {dataset.num_conversations} usable rows{words}")


def results_after(
    before: Baseline, *, evaluation: Evaluation, session: Session, pair: Pair
) -> dict[str, Any]:
    """Measure what was saved: rounded to bfloat16 and read back."""
    progress = session.progress
    saved = load_checkpoint(session.folder.checkpoint).to(pair.target.device)
    after = evaluation.held_out_loss(saved, progress=progress)
    trained = evaluation.decode(saved, progress=progress, name="trained drafter")
    block_size = saved.config.block_size
    return {
        "held_out": {"before": before.held_out, "after": after},
        "decoding": compare(
            before.plain, untrained=before.untrained, trained=trained, block_size=block_size
        ),
    }
