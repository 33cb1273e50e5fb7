"""Settings, models and conversations of trainings that take a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tests.train.tiny_run import MASK, conversation, encoding_for, make_model, make_tokenizer
from train.config import (
    DataConfig,
    DraftConfig,
    LogConfig,
    TargetConfig,
    TrainConfig,
    TrainSettings,
)
from train.conversations import parse_row
from train.course import Pair
from train.data import build_dataset
from train.drafter import Drafter
from train.drafter_config import drafter_config_for
from train.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from train.data import Dataset

LAYERS = (1, 4)
ANSWERS = ("abcabcabcabc", "xyzxyzxyzxyz" * 3, "hello hello", "0123456789" * 4, "aabbccdd")


def config_with(**train_settings: Any) -> TrainConfig:
    settings = {"epochs": 1, "peak_lr": 5e-3, "num_anchors": 8, "micro_batch": 2}
    return TrainConfig(
        name="t",
        target=TargetConfig(path="unused"),
        draft=DraftConfig(mask_token_id=MASK, num_layers=2, block_size=4),
        data=DataConfig(train="x", held_out="x", max_length=96, buckets=(64, 96)),
        train=TrainSettings(**(settings | train_settings)),
        log=LogConfig(every_steps=1),
    )


def tiny_target() -> Target:
    return Target(make_model(), make_tokenizer(), layer_ids=LAYERS)


def new_pair(target: Target) -> Pair:
    """The target with a random drafter, the same at every call."""
    torch.manual_seed(3)
    config = drafter_config_for(
        target.config, num_layers=2, block_size=4, mask_token_id=MASK, target_layer_ids=LAYERS
    )
    return Pair(target, Drafter(config))


def dataset_of(target: Target, answers: Iterable[str] = ANSWERS) -> Dataset:
    """A conversation for each answer."""
    rows = [parse_row(conversation("q", one), where="x") for one in answers]
    return build_dataset(rows, encoding_for(target))
