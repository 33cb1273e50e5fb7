"""The `[checkpoint]` section of a run file: what is saved, and when; imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Score = Literal["acceptance_length", "estimated_acceptance_length", "held_out_loss"]


class CheckpointConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is saved while the training runs, from which it can be resumed."""

    every_steps: Annotated[int, msgspec.Meta(ge=1)] = 1000
    """Optimizer steps between two checkpoints; the last step is always saved."""
    keep: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Newest checkpoints that are kept; the best one is kept beside them."""
    best_on: Score = "estimated_acceptance_length"
    """Figure of the evaluations in the loop that makes a checkpoint the best: the longest
    acceptance, decoded or estimated from the held-out conversations, or the lowest loss on them."""
