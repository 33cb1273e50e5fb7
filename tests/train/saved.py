"""A checkpoint of a drafter alone, without a run around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from train.checkpoint import serving_config, serving_weights, write_checkpoint
from train.durable import replacing

if TYPE_CHECKING:
    from pathlib import Path

    from train.drafter import Drafter


def save_checkpoint(drafter: Drafter, folder: Path, *, eos_token_id: int) -> None:
    """Write a checkpoint, in place of the one that may be there."""
    serving = serving_config(drafter.config, bos_token_id=1, eos_token_id=eos_token_id)
    with replacing(folder) as temporary:
        weights = serving_weights(drafter.state_dict())
        write_checkpoint(temporary, weights=weights, serving=serving)
