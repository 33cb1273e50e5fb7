from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.train.test_target_ends import LAYERS, drafter_for, make
from tests.train.tiny_run import make_tokenizer
from train.settings import ConfigError
from train.target import Target
from train.warm_start import copy_target_layers

if TYPE_CHECKING:
    from train.drafter import Drafter


def started(architecture: str, **changes: Any) -> tuple[Drafter, Any]:
    """Return a drafter that started from a target, and the target's last layer."""
    target = Target(make(architecture, **changes), make_tokenizer(), layer_ids=LAYERS)
    # Norms of a new model say nothing: theirs are all the same.
    for parameter in target.model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    drafter = drafter_for(target)
    copy_target_layers(drafter, target)
    return drafter, target.model.get_decoder()


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
def test_last_layers_are_copied(architecture: str) -> None:
    drafter, decoder = started(architecture)
    for source, destination in zip(decoder.layers[-2:], drafter.layers, strict=True):
        tensors = dict(source.named_parameters())
        for name, parameter in destination.named_parameters():
            if name in tensors:
                torch.testing.assert_close(parameter, tensors[name])
            else:
                assert name.endswith(("q_norm.weight", "k_norm.weight"))
                assert parameter.eq(1.0).all()
    torch.testing.assert_close(drafter.norm.weight, decoder.norm.weight)
    assert all(parameter.requires_grad for parameter in drafter.parameters())


def test_the_last_tapped_layer_passes_through() -> None:
    drafter, _ = started("llama")
    states_BTF = torch.randn(1, 3, 96)
    torch.testing.assert_close(drafter.fc(states_BTF), states_BTF[..., 64:], rtol=0.0, atol=0.1)


def test_norms_that_keep_one_less_are_understood() -> None:
    drafter, decoder = started("gemma")
    states = torch.randn(1, 3, 32)
    torch.testing.assert_close(drafter.norm(states), decoder.norm(states))
    ours: Any = drafter.layers[-1]
    torch.testing.assert_close(
        ours.input_layernorm(states), decoder.layers[-1].input_layernorm(states)
    )


def test_what_layers_add_keeps_its_scale() -> None:
    drafter, decoder = started("granite")
    ours: Any = drafter.layers[-1]
    states = torch.randn(1, 3, 32)
    torch.testing.assert_close(ours.mlp(states), 0.5 * decoder.layers[-1].mlp(states))


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        pytest.param("gemma2", "also have post_feedforward_layernorm", id="more-norms"),
        pytest.param("phi3", "also have mlp.gate_up_proj", id="joint-projections"),
        pytest.param("qwen3_moe", "mlp.gate", id="experts"),
        pytest.param("gpt_neox", "also have attention", id="other-names"),
    ],
)
def test_layers_built_differently_are_refused(architecture: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"draft\.init: 'target' does not fit .*{reason}"):
        started(architecture)


def test_another_shape_is_refused() -> None:
    other = Target(make("llama", intermediate_size=64), make_tokenizer(), layer_ids=LAYERS)
    target = Target(make("llama"), make_tokenizer(), layer_ids=LAYERS)
    with pytest.raises(ConfigError, match=r"does not fit .*\(64, 32\), wanted \(48, 32\)"):
        copy_target_layers(drafter_for(target), other)
