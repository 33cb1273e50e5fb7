"""A finished checkpoint with the target that it was trained for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from train.checkpoint import CheckpointError, load_checkpoint
from train.data import HOLDS_UNKNOWN, prompt_ids
from train.machine import choose_device
from train.settings import ConfigError
from train.target_loading import load_target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from train.config import TargetConfig
    from train.drafter import Drafter
    from train.questions import Question
    from train.target import Target


def load_drafter(checkpoint: Path) -> Drafter:
    """Read a checkpoint.

    Raises:
        ConfigError: Its files are missing or do not fit each other.
    """
    try:
        return load_checkpoint(checkpoint)
    except CheckpointError as error:
        raise ConfigError([str(error)]) from error


def load_target_of(drafter: Drafter, config: TargetConfig, *, device: str = "auto") -> Target:
    """Load the target that a drafter was trained for, with the taps that the drafter reads.

    Args:
        drafter: The drafter.
        config: Where the target is; its taps are not used.
        device: As `train.device` in a run file.

    Raises:
        ConfigError: The target cannot be loaded, or is of another shape.
    """
    taps = msgspec.structs.replace(config, layer_ids=drafter.config.target_layer_ids)
    target = load_target(taps, device=choose_device(device))
    require_fit(drafter, target)
    return target


def require_fit(drafter: Drafter, target: Target) -> None:
    """Check that a drafter can draft for a target.

    Raises:
        ConfigError: One line for each number that differs, with both values.
    """
    wanted, found = drafter.config, target.config
    pairs = {
        "hidden_size": (found.hidden_size, wanted.hidden_size),
        "vocab_size": (found.vocab_size, wanted.vocab_size),
        "num_hidden_layers": (found.num_hidden_layers, wanted.num_target_layers),
        "tapped layers": (target.layer_ids, wanted.target_layer_ids),
    }
    problems = [
        f"the target's {name} is {has}, and the drafter was trained for {wants}"
        for name, (has, wants) in pairs.items()
        if has != wants
    ]
    if problems:
        raise ConfigError(problems)


@dataclass(frozen=True)
class Prompt:
    """A prompt as the target reads it."""

    id: str
    ids: list[int]


def tokenised(questions: Sequence[Question], target: Target) -> list[Prompt]:
    """Return the prompts through the target's chat template.

    Raises:
        ConfigError: The template does not take one, or the target has no embedding for a token.
    """
    prompts = []
    for one in questions:
        ids = prompt_ids(one.conversation, target.tokenizer)
        if not ids:
            raise ConfigError([f"prompt {one.id}: the target's chat template refuses the turns"])
        if max(ids) >= target.config.vocab_size:
            raise ConfigError([f"prompt {one.id}: {HOLDS_UNKNOWN}"])
        prompts.append(Prompt(one.id, ids))
    return prompts
