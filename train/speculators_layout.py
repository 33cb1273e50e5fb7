"""`config.json` of vLLM's speculators layout; imports no torch.

Source: speculators 0.9.0, DFlashSpeculatorConfig; vLLM reads `speculators_config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.drafter_config import DrafterConfig


def speculators_config(
    config: DrafterConfig, *, target_name: str, target_architectures: Sequence[str]
) -> dict[str, Any]:
    """Return the configuration.

    Layers are numbered there by what they read: the output of decoder layer i is the input of layer
    i + 1, and that is its number. The anchor is the token that the target has just chosen, so that
    a block drafts one token fewer than it has slots.

    Args:
        config: The drafter.
        target_name: What the engine loads as the target, called the verifier there.
        target_architectures: Class names from the target's configuration.
    """
    return {
        "architectures": ["DFlashSpeculator"],
        "model_type": "speculator_model",
        "speculators_model_type": "dflash",
        "speculators_config": {
            "algorithm": "dflash",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {"proposal_type": "greedy", "speculative_tokens": config.block_size - 1}
            ],
            "verifier": {
                "name_or_path": target_name,
                "architectures": list(target_architectures),
            },
        },
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "aux_hidden_state_layer_ids": [layer + 1 for layer in config.target_layer_ids],
        "draft_vocab_size": config.vocab_size,
        "sample_from_anchor": False,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "transformer_layer_config": _layers(config),
    }


def _layers(config: DrafterConfig) -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "layer_types": ["full_attention"] * config.num_layers,
        "use_sliding_window": False,
        "sliding_window": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "initializer_range": config.initializer_range,
        "use_cache": True,
    }
