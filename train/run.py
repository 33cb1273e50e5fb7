"""One run: load, measure, train, save, measure again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from train.attention import DenseAttentionTooLargeError, UnfusedAttentionError
from train.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from train.config import to_builtins
from train.conversations import read_conversations
from train.data import Encoding, build_dataset, prompt_ids
from train.drafter import Drafter
from train.drafter_config import drafter_config_for
from train.evaluate import Evaluation, compare
from train.loop import Pair, train
from train.machine import Stopwatch, choose_device, machine_summary
from train.metrics import MetricsWriter
from train.progress import Progress
from train.run_folder import write_json
from train.selftest import SelfTestError, check_target
from train.settings import ConfigError
from train.target import load_target
from train.warm_start import copy_target_layers

if TYPE_CHECKING:
    from train.config import TrainConfig
    from train.data import Dataset
    from train.ledger import Outcome, StepReport
    from train.run_folder import RunFolder
    from train.signals import StopSignal
    from train.target import Target

SCHEMA_VERSION = 1
SELF_TEST_FAILURES = (SelfTestError, UnfusedAttentionError, CheckpointError)
"""What `execute` raises when something does not hold that a training relies on; exit code 1."""


@dataclass(frozen=True)
class Inputs:
    """What a run starts from.

    Attributes:
        pair: The target, and a drafter that has learned nothing yet.
        training: Samples to train on.
        held_out: Samples for the held-out loss.
        prompts: Token ids of the held-out prompts that are decoded.
    """

    pair: Pair
    training: Dataset
    held_out: Dataset
    prompts: list[list[int]]


def execute(config: TrainConfig, *, folder: RunFolder, stop: StopSignal) -> bool:
    """Run all phases and fill the folder, which holds nothing but the configuration.

    Returns:
        False when the user stopped it; what was learned until then is saved.

    Raises:
        ConfigError: Target or data cannot be used.
        SelfTestError: The target does not behave as the training needs.
    """
    watch = Stopwatch()
    progress = Progress(every_seconds=config.log.every_seconds)
    progress.say(f"{config.name}: loading {config.target.path}")
    with watch.phase("load"):
        inputs = load(config)
    pair = inputs.pair
    evaluation = Evaluation(
        config, target=pair.target, samples=inputs.held_out.samples, prompts=inputs.prompts
    )
    with watch.phase("evaluate_before"):
        losses = {"before": evaluation.held_out_loss(pair.drafter, progress=progress)}
        plain = evaluation.decode(None, progress=progress, name="target alone")
        untrained = evaluation.decode(pair.drafter, progress=progress, name="untrained drafter")
    with watch.phase("train"):
        outcome = train_and_save(config, inputs=inputs, folder=folder, stop=stop, progress=progress)
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
    summary = header(config, inputs=inputs, watch=watch, finished=not stop.requested) | results
    write_json(folder.summary, summary)
    for line in closing_lines(summary, folder):
        progress.say(line)
    return not stop.requested


def load(config: TrainConfig) -> Inputs:
    """Load the target and the data, test the target, and make the drafter.

    Raises:
        ConfigError: Something cannot be loaded, or too little of the data is of use.
        SelfTestError: The target does not behave as the training needs.
    """
    device = choose_device(config.train.device)
    target = load_target(config.target, num_taps=config.draft.num_layers, device=device)
    drafter = new_drafter(config, target)
    encoding = Encoding(
        tokenizer=target.tokenizer,
        eos_id=target.eos_id,
        mask_token_id=config.draft.mask_token_id,
        max_length=config.data.max_length,
        min_supervised=config.min_supervised,
    )
    conversations = read_conversations(Path(config.data.held_out))
    training = build_dataset(
        read_conversations(Path(config.data.train), max_rows=config.data.max_rows), encoding
    )
    held_out = build_dataset(conversations, encoding)
    for key, dataset, least in (("train", training, 1), ("held_out", held_out, 2)):
        if len(dataset.samples) < least:
            raise ConfigError(
                [f"data.{key}: {len(dataset.samples)} usable rows, dropped {dict(dataset.dropped)}"]
            )
    check_target(target, [sample.ids for sample in held_out.samples[:2]])
    prompts = [prompt_ids(conversation, target.tokenizer) for conversation in conversations]
    return Inputs(
        pair=Pair(target, drafter),
        training=training,
        held_out=held_out,
        prompts=[prompt for prompt in prompts if prompt][: config.eval.num_prompts],
    )


def new_drafter(config: TrainConfig, target: Target) -> Drafter:
    """Make an untrained drafter on the target's device, the same for the same seed.

    Raises:
        ConfigError: The target's shape and the settings contradict each other.
    """
    try:
        drafter_config = drafter_config_for(
            target.config,
            num_layers=config.draft.num_layers,
            block_size=config.draft.block_size,
            mask_token_id=config.draft.mask_token_id,
            target_layer_ids=target.layer_ids,
        )
    except ValueError as error:
        raise ConfigError([f"draft: {error}"]) from error
    torch.manual_seed(config.train.seed)
    drafter = Drafter(drafter_config, checkpoint_layers=config.train.checkpoint_layers)
    if config.draft.init == "target":
        copy_target_layers(drafter, target)
    return drafter.to(target.device)


def train_and_save(
    config: TrainConfig,
    *,
    inputs: Inputs,
    folder: RunFolder,
    stop: StopSignal,
    progress: Progress,
) -> Outcome:
    """Train, and save what was learned, also when the user stops it.

    Raises:
        ConfigError: The device needs dense attention, and the blocks do not fit.
    """
    target = inputs.pair.target
    with MetricsWriter(folder.metrics) as metrics, stop.finishing_steps():
        report = partial(report_step, metrics=metrics, progress=progress)
        samples = inputs.training.samples
        try:
            outcome = train(config, pair=inputs.pair, samples=samples, report=report, stop=stop)
        except DenseAttentionTooLargeError as error:
            raise ConfigError([f"train.num_anchors: {error}"]) from error
        save_checkpoint(
            inputs.pair.drafter,
            folder.checkpoint,
            bos_token_id=target.tokenizer.bos_token_id,
            eos_token_id=target.eos_id,
        )
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


def header(
    config: TrainConfig, *, inputs: Inputs, watch: Stopwatch, finished: bool
) -> dict[str, Any]:
    """Return the part of the summary that says what ran where."""
    drafter = inputs.pair.drafter
    return {
        "schema_version": SCHEMA_VERSION,
        "name": config.name,
        "state": "finished" if finished else "interrupted",
        "seconds": watch.wall_seconds,
        "cpu_seconds": watch.cpu_seconds,
        "machine": machine_summary(inputs.pair.target.device),
        "data": {
            "num_train": len(inputs.training.samples),
            "num_held_out": len(inputs.held_out.samples),
            "dropped_train": dict(inputs.training.dropped),
            "dropped_held_out": dict(inputs.held_out.dropped),
        },
        "num_draft_parameters": sum(parameter.numel() for parameter in drafter.parameters()),
        "target_layer_ids": list(inputs.pair.target.layer_ids),
        "config": to_builtins(config),
    }


def closing_lines(summary: dict[str, Any], folder: RunFolder) -> list[str]:
    """Return what a person wants to know at the end."""
    lines = [f"checkpoint in {folder.checkpoint}, figures in {folder.summary}"]
    held_out, decoding = summary["held_out"], summary.get("decoding")
    if decoding is None:
        return [f"stopped after {summary['training']['steps']} steps", *lines]
    before, after = held_out["before"]["loss"], held_out["after"]["loss"]
    trained = decoding["trained"]
    return [
        f"held-out loss {before:.3f} -> {after:.3f} nats",
        f"acceptance length {acceptance_words(decoding)}, {trained['num_prompts']} prompts",
        f"decoding {'equals' if decoding['lossless'] else 'DIFFERS FROM'} plain greedy decoding",
        *lines,
    ]


def acceptance_words(decoding: dict[str, Any]) -> str:
    """Return the acceptance length before and after with its error, in tokens per verification."""
    trained = decoding["trained"]
    return (
        f"{decoding['untrained']['mean']:.3f} -> {trained['mean']:.3f}"
        f" +- {trained['standard_error']:.3f}"
        f" ({decoding['standard_errors_above_untrained']:.1f} standard errors above untrained)"
    )
