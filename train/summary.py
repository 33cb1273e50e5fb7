"""The summary of a run, and what a person reads at its end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from train.config import to_builtins
from train.machine import machine_summary

if TYPE_CHECKING:
    from train.config import TrainConfig
    from train.inputs import Inputs
    from train.machine import Stopwatch
    from train.run_folder import RunFolder

SCHEMA_VERSION = 1


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
            "num_train": inputs.training.num_conversations,
            "num_train_rows": len(inputs.training.samples),
            "num_held_out": len(inputs.held_out.samples),
            "dropped_train": dict(inputs.training.dropped),
            "dropped_held_out": dict(inputs.held_out.dropped),
        },
        "num_draft_parameters": sum(parameter.numel() for parameter in drafter.parameters()),
        "mask_token_id": drafter.config.mask_token_id,
        "target_layer_ids": list(inputs.pair.target.layer_ids),
        "config": to_builtins(config),
    }


def closing_lines(summary: dict[str, Any], folder: RunFolder) -> list[str]:
    """Return what a person wants to know at the end."""
    lines = [f"checkpoint in {folder.checkpoint}, figures in {folder.summary}"]
    lines = [*compiled_line(summary["compilation"]), *lines]
    held_out, decoding = summary["held_out"], summary.get("decoding")
    if decoding is None:
        training = summary["training"]
        stopped = f"stopped after {training['steps']} of {training['num_steps']} steps"
        return [f"{stopped}; --resume {folder.path} goes on", *lines]
    before, after = held_out["before"]["loss"], held_out["after"]["loss"]
    return [
        f"held-out loss {before:.3f} -> {after:.3f} nats",
        f"acceptance length {acceptance_words(decoding)}",
        f"decoding {'equals' if decoding['lossless'] else 'DIFFERS FROM'} plain greedy decoding",
        *speed_lines(decoding),
        *lines,
    ]


def compiled_line(compilation: dict[str, Any]) -> list[str]:
    """Return what was compiled, in one line; nothing where attention is not."""
    if not compilation["num_shapes"]:
        return []
    whole, later = compilation["compiled"], compilation["compiled_after_warm_up"]
    num_later = later["num_graphs"] + later["num_new"]
    new, cached = whole["num_new"], whole["num_kernels_cached"]
    return [f"{new} compilations, {num_later} after the warm-up; {cached} came from the cache"]


def acceptance_words(decoding: dict[str, Any]) -> str:
    """Return the acceptance length before and after with its error, in tokens per verification.

    One prompt has no error, and answers of one token have no verification.
    """
    before, trained = decoding["untrained"], decoding["trained"]
    number, error = trained["num_prompts"], trained["standard_error"]
    if not number:
        return "not measured: every answer ended at its first token"
    words = f"{before['mean']:.3f} -> {trained['mean']:.3f}"
    if number == 1:
        return f"{words}, 1 prompt"
    above = decoding["standard_errors_above_untrained"]
    return f"{words} +- {error:.3f} ({above:.1f} standard errors above untrained), {number} prompts"


def speed_lines(decoding: dict[str, Any]) -> list[str]:
    """Return how fast decoding became, and on how many prompts; nothing where it was not timed."""
    if math.isnan(decoding["speed_up"]):
        return []
    number = decoding["num_timed_prompts"]
    prompts = "1 prompt" if number == 1 else f"{number} prompts, one at a time"
    return [f"{decoding['speed_up']:.2f} times as fast as the target alone, {prompts}"]
