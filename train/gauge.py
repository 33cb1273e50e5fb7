"""How well a training uses its device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.checkpoint import shape_of
from train.epoch_work import epoch_flops, padded_rows
from train.flops import peak_flops
from train.machine import device_name, peak_memory_bytes

if TYPE_CHECKING:
    import torch

    from train.course import Course


@dataclass(frozen=True)
class Gauge:
    """Turns a rate of tokens into a share of what the device can do.

    Attributes:
        device: Where the training runs.
        flops_per_token: Operations of the drafter's forward and backward per context token without
            padding, mean over an epoch; those of the target are left out.
        peak: Operations per second of the device; None when it is not known.
    """

    device: torch.device
    flops_per_token: float
    peak: float | None

    def reading(self, tokens_per_second: float) -> dict[str, float]:
        """Return what belongs into a record: peak memory in bytes, and `mfu` where it is known."""
        found: dict[str, float] = {"peak_memory_bytes": peak_memory_bytes(self.device)}
        if self.peak:
            found["mfu"] = tokens_per_second * self.flops_per_token / self.peak
        return found


def gauge_of(course: Course) -> Gauge:
    """Count the work of an epoch, and look up the device."""
    config, device = course.config, course.pair.target.device
    drafter = course.pair.drafter.config
    rows = padded_rows(course.samples, config)
    flops = epoch_flops(rows, config, shape=shape_of(drafter), vocab_size=drafter.vocab_size)
    num_tokens = sum(len(sample.ids) for sample in course.samples)
    peak = peak_flops(device_name(device)) if device.type == "cuda" else None
    return Gauge(device, flops / num_tokens, peak)
