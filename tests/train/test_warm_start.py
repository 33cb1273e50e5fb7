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

STATES = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(0))


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
        ours: Any = destination
        torch.testing.assert_close(ours.mlp(STATES), source.mlp(STATES))
        for name in ("o_proj.weight", "post_attention_layernorm.weight"):
            wanted = dict(source.named_parameters())
            for own_name, parameter in ours.named_parameters():
                if own_name.endswith(name):
                    torch.testing.assert_close(parameter, wanted[own_name])
    torch.testing.assert_close(drafter.norm.weight, decoder.norm.weight)
    assert all(parameter.requires_grad for parameter in drafter.parameters())


@pytest.mark.parametrize("architecture", ["llama", "gemma", "qwen3"])
@pytest.mark.parametrize("projection", ["q_proj", "k_proj", "v_proj"])
def test_projections_of_context_are_those_of_the_target(architecture: str, projection: str) -> None:
    """The drafter norms its context once, without the gain of any layer's input norm."""
    drafter, decoder = started(architecture)
    for source, destination in zip(decoder.layers[-2:], drafter.layers, strict=True):
        theirs = getattr(source.self_attn, projection)(source.input_layernorm(STATES))
        ours: Any = destination
        context = drafter.hidden_norm(STATES)
        torch.testing.assert_close(getattr(ours.self_attn, projection)(context), theirs)
        draft = ours.input_layernorm(STATES)
        torch.testing.assert_close(getattr(ours.self_attn, projection)(draft), theirs)


def test_keys_keep_their_length_where_the_target_does_not_norm_them() -> None:
    drafter, _ = started("llama")
    ours: Any = drafter.layers[-1].self_attn
    states = drafter.hidden_norm(torch.randn(1, 400, 32))
    for projection, norm in ((ours.q_proj, ours.q_norm), (ours.k_proj, ours.k_norm)):
        heads = projection(states).unflatten(-1, (-1, 8))
        lengths = [x.square().mean().sqrt() for x in (heads, norm(heads))]
        torch.testing.assert_close(lengths[0], lengths[1], rtol=0.1, atol=0.0)


def test_norms_of_queries_and_keys_are_copied_where_the_target_has_them() -> None:
    drafter, decoder = started("qwen3")
    ours: Any = drafter.layers[-1].self_attn
    torch.testing.assert_close(ours.k_norm.weight, decoder.layers[-1].self_attn.k_norm.weight)


def test_the_last_tapped_layer_passes_through() -> None:
    drafter, _ = started("llama")
    states_BTF = torch.randn(1, 3, 96)
    torch.testing.assert_close(drafter.fc(states_BTF), states_BTF[..., 64:], rtol=0.0, atol=0.1)


def test_norms_that_keep_one_less_are_understood() -> None:
    drafter, decoder = started("gemma")
    torch.testing.assert_close(drafter.norm(STATES), decoder.norm(STATES))
    ours: Any = drafter.layers[-1]
    torch.testing.assert_close(
        ours.post_attention_layernorm(STATES), decoder.layers[-1].post_attention_layernorm(STATES)
    )


def test_what_layers_add_keeps_its_scale() -> None:
    drafter, decoder = started("granite")
    ours: Any = drafter.layers[-1]
    torch.testing.assert_close(ours.mlp(STATES), 0.5 * decoder.layers[-1].mlp(STATES))


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
