"""A target's configuration and tokenizer, without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from train.hub import where_to_look
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
        num_active: Those that each token of its decoder meets: neither embedding nor head, and of
            experts as many as a token is sent to.
    """

    config: PreTrainedConfig
    tokenizer: Any
    eos_id: int
    num_parameters: int
    num_active: int


def read_target_shape(config: TargetConfig) -> TargetShape:
    """Read a target's configuration and tokenizer.

    Raises:
        ConfigError: Nothing loadable is there, or the settings do not fit it.
    """
    folder, gguf_file = locate(config.path)
    loaders: tuple[Any, Any, Any] = (AutoConfig, AutoTokenizer, AutoModelForCausalLM)
    where = where_to_look(folder)
    with reading(config):
        whole = loaders[0].from_pretrained(folder, gguf_file=gguf_file, **where)
        tokenizer = loaders[1].from_pretrained(folder, gguf_file=gguf_file, **where)
        require_chat_template(tokenizer)
        with torch.device("meta"):
            model = loaders[2].from_config(whole)
    text: PreTrainedConfig = whole.get_text_config()
    return TargetShape(
        config=text,
        tokenizer=tokenizer,
        eos_id=checked_eos_id(tokenizer, text, config.eos_token_id),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        num_active=num_active_parameters(model, text),
    )


def num_active_parameters(model: Any, config: PreTrainedConfig) -> int:
    """Count the parameters that a token meets in the decoder; see `TargetShape.num_active`."""
    ends = {
        id(module.weight)
        for module in (model.get_input_embeddings(), model.get_output_embeddings())
        if module is not None
    }
    share = expert_share(config)
    return sum(
        round(parameter.numel() * (share if ".experts." in name else 1.0))
        for name, parameter in model.named_parameters()
        if id(parameter) not in ends
    )


def expert_share(config: PreTrainedConfig) -> float:
    """Return the share of the routed experts that a token is sent to; 1 where there are none."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    found = [number for name in names if (number := getattr(config, name, None))]
    chosen: int | None = getattr(config, "num_experts_per_tok", None)
    return chosen / found[0] if found and chosen else 1.0
