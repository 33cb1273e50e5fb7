from __future__ import annotations

from typing import Any

import pytest
from transformers import GPT2Config, LlamaConfig, Qwen3Config

from tests.train.conftest import TinyTarget, tiny_config
from train.drafter_config import DrafterConfig, drafter_config_for


def rotary(theta: float, **scaling: Any) -> Any:
    return {"rope_type": "default", "rope_theta": theta} | scaling


def test_shape_of_a_target_that_names_little() -> None:
    config = drafter_config_for(
        GPT2Config(n_embd=32, n_head=4, n_layer=6, vocab_size=50),
        num_layers=2,
        block_size=8,
        mask_token_id=16,
        target_layer_ids=(1, 5),
    )
    assert (config.intermediate_size, config.head_dim, config.num_key_value_heads) == (128, 8, 4)


@pytest.mark.parametrize(
    ("target_config", "head_dim", "num_kv_heads", "theta"),
    [
        pytest.param(
            LlamaConfig(
                num_attention_heads=9,
                num_key_value_heads=3,
                hidden_size=576,
                rope_parameters=rotary(1e5),
            ),
            64,
            3,
            1e5,
            id="llama",
        ),
        pytest.param(
            Qwen3Config(rope_parameters=rotary(1e6), num_key_value_heads=8), 128, 8, 1e6, id="qwen3"
        ),
        pytest.param(
            LlamaConfig(rope_parameters=rotary(5e5, rope_type="linear", factor=8.0)),
            128,
            32,
            5e5,
            id="scaled-rotary-becomes-plain",
        ),
    ],
)
def test_shape_follows_the_target(
    target_config: LlamaConfig | Qwen3Config, head_dim: int, num_kv_heads: int, theta: float
) -> None:
    config = drafter_config_for(
        target_config, num_layers=2, block_size=8, mask_token_id=16, target_layer_ids=(1, 5)
    )
    assert (config.head_dim, config.num_key_value_heads) == (head_dim, num_kv_heads)
    assert config.rope_theta == theta
    assert config.target_hidden_size == 2 * target_config.hidden_size
    assert config.rms_norm_eps == target_config.rms_norm_eps


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"block_size": 1}, "block_size"),
        ({"mask_token_id": 61}, "mask_token_id"),
        ({"target_layer_ids": (3, 1)}, "increase"),
        ({"target_layer_ids": ()}, "not be empty"),
        ({"target_layer_ids": (1, 6)}, "layers of the target"),
        ({"num_key_value_heads": 3}, "divide"),
        ({"head_dim": 7}, "even"),
    ],
)
def test_contradictions_are_refused(
    target: TinyTarget, change: dict[str, Any], reason: str
) -> None:
    fields = vars(tiny_config(target, block_size=4)) | change
    with pytest.raises(ValueError, match=reason):
        DrafterConfig(**fields)
