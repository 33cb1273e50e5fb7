"""The best score of a run so far."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from train.checkpoint_section import Score


class Best:
    """Remembers after which step the drafter was best.

    Args:
        score: Figure that decides.

    Attributes:
        step: Optimizer steps taken when it was best; None before the first offer.
        value: The figure then.
    """

    def __init__(self, score: Score) -> None:
        self.score = score
        self.step: int | None = None
        self.value = math.nan

    def offer(self, step: int, figures: Mapping[str, float]) -> None:
        """Consider what an evaluation found; of equals the earlier stays.

        Args:
            step: Optimizer steps taken.
            figures: What was measured; without the score, or with nan, nothing happens.
        """
        value = figures.get(self.score, math.nan)
        sign = -1.0 if self.score == "held_out_loss" else 1.0
        if math.isfinite(value) and (self.step is None or sign * value > sign * self.value):
            self.step, self.value = step, value

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run compares with."""
        return {"score": self.score, "step": self.step, "value": self.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from an earlier best, unless it was decided by another figure."""
        if state["score"] == self.score:
            self.step, self.value = state["step"], state["value"]
