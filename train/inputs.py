"""What a run starts from: target, untrained drafter, data and prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from train.attention import attention_for
from train.conversations import read_conversations
from train.course import Pair
from train.data import Encoding, build_dataset, prompt_ids
from train.drafter import Drafter
from train.drafter_config import drafter_config_of
from train.machine import choose_device
from train.mask_token import unused_token
from train.packing import packed
from train.progress import to_stderr
from train.selftest import check_mask_token, check_target
from train.selftest_packing import check_packing
from train.settings import ConfigError
from train.target_loading import load_target
from train.warm_start import copy_target_layers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


def load(config: TrainConfig, *, say: Callable[[str], None] = to_stderr) -> Inputs:
    """Load the target and the data, test the target, and make the drafter.

    Args:
        config: The run.
        say: Told what is waited for.

    Raises:
        ConfigError: Something cannot be loaded, or too little of the data is of use.
        SelfTestError: The target does not behave as the training needs.
    """
    device = choose_device(config.train.device)
    attention_for(device, kind=config.train.attention)  # refuses what the device cannot do
    # A model takes a minute to load; a row that is no conversation is found in a second.
    conversations, questions = read_data(config.data)
    target = load_target(config.target, num_taps=config.draft.num_layers, device=device, say=say)
    training, held_out = encoded(config, target, conversations=conversations, questions=questions)
    mask_token_id = mask_token_of(config, target, {"train": training, "held_out": held_out})
    drafter = new_drafter(config, target, mask_token_id=mask_token_id)
    rows = [sample.ids for sample in held_out.samples[:2]]
    check_target(target, rows)
    if config.data.packing:
        check_packing(target, rows)
    vocab_size = target.config.vocab_size
    prompts = [
        ids
        for conversation in questions
        if (ids := prompt_ids(conversation, target.tokenizer)) and max(ids) < vocab_size
    ]
    return Inputs(
        pair=Pair(target, drafter),
        training=packed(training, config.data),
        held_out=held_out,
        prompts=prompts[: config.eval.num_prompts],
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


def encoded(
    config: TrainConfig,
    target: Target,
    *,
    conversations: Sequence[Conversation],
    questions: Sequence[Conversation],
) -> tuple[Dataset, Dataset]:
    """Return what there is to train on, and what is kept for evaluation, as tokens.

    Raises:
        ConfigError: Too little of either is of use.
    """
    encoding = Encoding.of(config, target)
    training, held_out = (build_dataset(one, encoding) for one in (conversations, questions))
    training.require(1, key="data.train")
    held_out.require(2, key="data.held_out")
    return training, held_out


def mask_token_of(config: TrainConfig, target: Target, datasets: Mapping[str, Dataset]) -> int:
    """Return the token that means "to be predicted", which no conversation holds.

    Raises:
        ConfigError: None is to be found.
        SelfTestError: The one that the run file names is in the data.
    """
    chosen = config.draft.mask_token_id
    if chosen != "auto":
        check_mask_token(chosen, datasets)
        return chosen
    samples = [sample for dataset in datasets.values() for sample in dataset.samples]
    return unused_token(
        target.tokenizer,
        num_rows=target.config.vocab_size,
        used={target.eos_id}.union(*(sample.ids for sample in samples)),
    )


def new_drafter(config: TrainConfig, target: Target, *, mask_token_id: int) -> Drafter:
    """Make an untrained drafter on the target's device, the same for the same seed.

    Raises:
        ConfigError: The target's shape and the settings contradict each other.
    """
    drafter_config = drafter_config_of(
        config,
        target.config,
        mask_token_id=mask_token_id,
        target_layer_ids=target.layer_ids,
    )
    torch.manual_seed(config.train.seed)
    drafter = Drafter(drafter_config, checkpoint_layers=config.train.checkpoint_layers)
    if config.draft.init == "target":
        copy_target_layers(drafter, target)
    return drafter.to(target.device)
