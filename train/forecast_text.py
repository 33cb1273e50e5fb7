"""A forecast as a person reads it; no torch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from train.progress import duration
from train.sizes import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

MEASURED = "`train plan --tokens-per-second N` tells it for the rate of a run that was measured"


def forecast_lines(summary: Mapping[str, Any], *, tokens_per_second: float | None) -> list[str]:
    """Return the lines of `train --plan`.

    Args:
        summary: What `Forecast.summary` returned.
        tokens_per_second: Context tokens per second that somebody measured; None if nobody did.
    """
    config = summary["config"]
    epochs, per_epoch = summary["epochs"], summary["context_tokens_per_epoch"]
    dropped = ", ".join(f"{count} {reason}" for reason, count in summary["dropped"].items())
    dense = readable(summary["dense_attention_bytes_per_layer"])
    flops = summary["flops"]
    rows = {
        "data": f"{summary['num_samples']} conversations, {per_epoch:,} tokens;"
        f" dropped: {dropped or 'none'}",
        "steps": f"{summary['num_steps']:,} in {epochs:.3g} epochs",
        "target": f"{summary['num_target_parameters']:,} parameters, of which a token meets"
        f" {summary['num_target_parameters_per_token']:,}; layers"
        f" {' '.join(map(str, summary['target_layer_ids']))}",
        "drafter": f"{summary['num_draft_parameters']:,} parameters, gamma {summary['gamma']:g}",
        "work": f"{flops['drafter']:.3g} operations for the drafter, at least"
        f" {flops['target']:.3g} for the target",
        "memory": "; ".join(
            f"{name} {readable(size)}" for name, size in summary["memory_bytes"].items()
        ),
        "attention": f"dense it would hold {dense} in each layer; compiled flex holds no scores",
        "time": _time(summary, tokens_per_second),
    }
    width = max(map(len, rows))
    lines = [f"{name:<{width}}  {text}" for name, text in rows.items()]
    return [json.dumps(config, indent=2), *lines]


def _time(summary: Mapping[str, Any], tokens_per_second: float | None) -> str:
    if tokens_per_second is not None:
        num_tokens = summary["epochs"] * summary["context_tokens_per_epoch"]
        took = duration(num_tokens / tokens_per_second)
        return f"{took} at the given {tokens_per_second:,.0f} context tokens per second"
    least = [f"{duration(time)} on one {gpu}" for gpu, time in summary["seconds_at_peak"].items()]
    if not least:
        return f"not known; {MEASURED}"
    return f"more than {', '.join(least)}, what the work takes at their peaks; {MEASURED}"
