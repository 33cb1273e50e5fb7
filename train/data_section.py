"""The `[data]` section of a run file: conversations, and how they become rows; imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from train.train_section import PositiveInt

HUB_PREFIX = "hub:"
"""Stands before the name of a data set that the package `datasets` fetches."""


class DataConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conversations; the assistant turns should be the target's own words."""

    train: Annotated[str, msgspec.Meta(min_length=1)]
    """Conversations to train on: a file of JSON lines with `messages` (OpenAI) or `conversations`
    (ShareGPT), also with `.gz` behind; or, where the package `datasets` is installed, a `.parquet`
    file or `hub:OWNER/NAME[/CONFIG][:SPLIT]`."""
    held_out: Annotated[str, msgspec.Meta(min_length=1)]
    """Conversations kept for evaluation, in the same forms; shares no prompt with `train`."""
    max_length: Annotated[int, msgspec.Meta(ge=8)] = 3072
    """Tokens of a conversation that are kept."""
    buckets: tuple[PositiveInt, ...] = (512, 1024, 2048, 3072)
    """Tokens: rows are padded to the smallest of these lengths that holds them."""
    packing: bool = False
    """Put several conversations to train on into one row, up to the largest bucket; neither target
    nor drafter sees one from another."""
    min_supervised: PositiveInt | None = None
    """Tokens: rows with fewer assistant tokens are dropped; unset is twice the block size."""
    max_rows: PositiveInt | None = None
    """Conversations taken from the start of `train`; unset takes all."""


def absolute_source(source: str, folder: Path) -> str:
    """Return a data file as an absolute path; the name of a data set as it is."""
    return source if source.startswith(HUB_PREFIX) else str(folder / Path(source).expanduser())
