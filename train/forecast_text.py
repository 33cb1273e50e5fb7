"""A forecast as a person reads it; no torch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from train.sizes import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN_TIME = "not known: measure a run of this kind and give its rate with --tokens-per-second"


def forecast_lines(summary: Mapping[str, Any], *, tokens_per_second: float | None) -> list[str]:
    """Return the lines of `train --plan`.

    Args:
        summary: What `Forecast.summary` returned.
        tokens_per_second: Context tokens per second that somebody measured; None if nobody did.
    """
    config = summary["config"]
    epochs, per_epoch = config["train"]["epochs"], summary["context_tokens_per_epoch"]
    dropped = ", ".join(f"{count} {reason}" for reason, count in summary["dropped"].items())
    dense = readable(summary["dense_attention_bytes_per_layer"])
    flops = epochs * summary["flops_per_epoch"]
    target_passes = 1 if config["train"]["cache_features_bytes"] else epochs
    rows = {
        "data": f"{summary['num_samples']} conversations, {per_epoch:,} tokens;"
        f" dropped: {dropped or 'none'}",
        "steps": f"{summary['num_steps']:,} in {epochs} epochs",
        "target": f"{summary['num_target_parameters']:,} parameters, layers"
        f" {' '.join(map(str, summary['target_layer_ids']))}",
        "drafter": f"{summary['num_draft_parameters']:,} parameters, gamma {summary['gamma']:g}",
        "work": f"{flops:.3g} operations for the drafter, at least"
        f" {target_passes * summary['target_flops_per_epoch']:.3g} for the target",
        "memory": "; ".join(
            f"{name} {readable(size)}" for name, size in summary["memory_bytes"].items()
        ),
        "attention": f"dense it would hold {dense} in each layer; compiled flex holds no scores",
        "time": _time(epochs * per_epoch, tokens_per_second),
    }
    width = max(map(len, rows))
    lines = [f"{name:<{width}}  {text}" for name, text in rows.items()]
    return [json.dumps(config, indent=2), *lines]


def _time(num_tokens: int, tokens_per_second: float | None) -> str:
    if tokens_per_second is None:
        return UNKNOWN_TIME
    minutes = num_tokens / tokens_per_second / 60
    return f"{minutes:.1f} minutes at the given {tokens_per_second:,.0f} context tokens per second"
