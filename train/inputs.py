"""What a run starts from: target, untrained drafter, data and prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from train.attention import attention_for
from train.conversations import read_conversations
from train.course import Pair
from train.data import Encoding, build_dataset, prompt_ids
from train.drafter import Drafter
from train.drafter_config import drafter_config_for
from train.machine import choose_device
from train.packing import pack
from train.selftest import check_mask_token, check_target
from train.selftest_packing import check_packing
from train.settings import ConfigError
from train.target import load_target
from train.warm_start import copy_target_layers

if TYPE_CHECKING:
    from train.config import DataConfig, TrainConfig
    from train.conversations import Conversation
    from train.data import Dataset
    from train.target import Target


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


def load(config: TrainConfig) -> Inputs:
    """Load the target and the data, test the target, and make the drafter.

    Raises:
        ConfigError: Something cannot be loaded, or too little of the data is of use.
        SelfTestError: The target does not behave as the training needs.
    """
    device = choose_device(config.train.device)
    attention_for(device, kind=config.train.attention)  # refuses what the device cannot do
    # A model takes a minute to load; a row that is no conversation is found in a second.
    conversations, questions = read_data(config.data)
    target = load_target(config.target, num_taps=config.draft.num_layers, device=device)
    drafter = new_drafter(config, target)
    encoding = Encoding(
        tokenizer=target.tokenizer,
        eos_id=target.eos_id,
        mask_token_id=config.draft.mask_token_id,
        max_length=config.data.max_length,
        min_supervised=config.min_supervised,
    )
    training = build_dataset(conversations, encoding)
    held_out = build_dataset(questions, encoding)
    for key, dataset, least in (("train", training, 1), ("held_out", held_out, 2)):
        if len(dataset.samples) < least:
            raise ConfigError(
                [f"data.{key}: {len(dataset.samples)} usable rows, dropped {dict(dataset.dropped)}"]
            )
    check_mask_token(config.draft.mask_token_id, {"train": training, "held_out": held_out})
    rows = [sample.ids for sample in held_out.samples[:2]]
    check_target(target, rows)
    if config.data.packing:
        check_packing(target, rows)
        training = replace(training, samples=pack(training.samples, length=config.data.buckets[-1]))
    prompts = [prompt_ids(conversation, target.tokenizer) for conversation in questions]
    return Inputs(
        pair=Pair(target, drafter),
        training=training,
        held_out=held_out,
        prompts=[prompt for prompt in prompts if prompt][: config.eval.num_prompts],
    )


def read_data(data: DataConfig) -> tuple[list[Conversation], list[Conversation]]:
    """Return the conversations to train on, and those kept for evaluation.

    Raises:
        ConfigError: One line for each row that is no conversation, of both sources.
    """
    found: list[list[Conversation]] = []
    problems: list[str] = []
    for source, max_rows in ((data.train, data.max_rows), (data.held_out, None)):
        try:
            found.append(read_conversations(source, max_rows=max_rows))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    training, held_out = found
    return training, held_out


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
