"""A view that says what a causal order says changes nothing, whatever the architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.train.tiny_run import EOS, make_tokenizer
from train.frozen_target import View
from train.target import Target

if TYPE_CHECKING:
    from torch import Tensor

SHAPE: dict[str, Any] = {
    "vocab_size": 261,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": EOS,
}
MIXED = ["full_attention", "sliding_attention"] * 2
MODELS = [
    pytest.param("llama", {}, id="llama"),
    pytest.param("mistral", {"sliding_window": 5}, id="mistral-all-sliding"),
    pytest.param("phi3", {"sliding_window": 5}, id="phi3-all-sliding"),
    pytest.param("qwen2", {}, id="qwen2"),
    pytest.param(
        "qwen3",
        {"use_sliding_window": True, "sliding_window": 5, "layer_types": MIXED},
        id="qwen3-mixed",
    ),
    pytest.param("gemma3_text", {"sliding_window": 5, "layer_types": MIXED}, id="gemma3-mixed"),
]


def make_target(kind: str, changes: dict[str, Any], *, attention: str) -> Target:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SHAPE, **changes)
    factory: Any = AutoModelForCausalLM
    model = factory.from_config(config, attn_implementation=attention).eval()
    return Target(model, make_tokenizer(), layer_ids=(0, 2))


def causal(num_tokens: int, *, documents: Tensor | None = None) -> View:
    places = torch.arange(num_tokens)
    visible = places[:, None] >= places
    if documents is not None:
        visible = visible & (documents[:, None] == documents)
        places = places - torch.searchsorted(documents, documents)
    return View(places[None], visible[None], key_positions_BS=places[None])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(("kind", "changes"), MODELS)
def test_causal_view_changes_nothing(kind: str, changes: dict[str, Any], attention: str) -> None:
    target = make_target(kind, changes, attention=attention)
    ids_1T = torch.randint(3, 261, (1, 14), generator=torch.Generator().manual_seed(0))
    plain, viewed = target.states(ids_1T), target.states(ids_1T, view=causal(14))
    torch.testing.assert_close(viewed.final_BTD, plain.final_BTD, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(viewed.tapped_BTF, plain.tapped_BTF, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("kind", "changes"), MODELS)
def test_texts_side_by_side_are_as_alone(kind: str, changes: dict[str, Any]) -> None:
    target = make_target(kind, changes, attention="sdpa")
    ids_1T = torch.randint(3, 261, (1, 14), generator=torch.Generator().manual_seed(0))
    view = causal(14, documents=torch.tensor([0] * 6 + [1] * 8))
    together_1TF = target.states(ids_1T, view=view).tapped_BTF
    alone = [target.states(part).tapped_BTF for part in (ids_1T[:, :6], ids_1T[:, 6:])]
    torch.testing.assert_close(together_1TF, torch.cat(alone, dim=1), atol=1e-5, rtol=1e-5)
