"""A target's configuration and tokenizer, without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from train.target import checked_eos_id
from train.target_loading import locate, reading, require_chat_template

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from train.config import TargetConfig


@dataclass(frozen=True)
class TargetShape:
    """What is known of a target before its weights are read.

    Attributes:
        config: Of its language model.
        tokenizer: With its chat template.
        eos_id: Token that ends a turn.
        num_parameters: Numbers in its weights; tied ones count once.
    """

    config: PreTrainedConfig
    tokenizer: Any
    eos_id: int
    num_parameters: int


def read_target_shape(config: TargetConfig) -> TargetShape:
    """Read a target's configuration and tokenizer.

    Raises:
        ConfigError: Nothing loadable is there, or the settings do not fit it.
    """
    folder, gguf_file = locate(config.path)
    loaders: tuple[Any, Any, Any] = (AutoConfig, AutoTokenizer, AutoModelForCausalLM)
    with reading(config):
        whole = loaders[0].from_pretrained(folder, gguf_file=gguf_file)
        tokenizer = loaders[1].from_pretrained(folder, gguf_file=gguf_file)
        require_chat_template(tokenizer)
        with torch.device("meta"):
            model = loaders[2].from_config(whole)
    text: PreTrainedConfig = whole.get_text_config()
    return TargetShape(
        config=text,
        tokenizer=tokenizer,
        eos_id=checked_eos_id(tokenizer, text, config.eos_token_id),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
