from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.autograd import backward
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3MLP, Qwen3RotaryEmbedding

from train.attention import DenseMask
from train.drafter import Drafter, Rotary, attend_to_all
from train.drafter_config import DrafterConfig
from train.objective import Objective, Rows, draft_loss
from train.slot_weights import DecayedWeights

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.train.conftest import TinyTarget

OBJECTIVE = Objective(num_anchors=6, weights=DecayedWeights(4.0), attention=DenseMask())


def qwen3_8b() -> DrafterConfig:
    return DrafterConfig(
        hidden_size=4096,
        num_layers=5,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=12288,
        vocab_size=151936,
        block_size=16,
        mask_token_id=151669,
        target_layer_ids=(1, 9, 17, 25, 33),
        num_target_layers=36,
    )


def test_tensors_have_the_names_and_shapes_of_the_format() -> None:
    with torch.device("meta"):
        drafter = Drafter(qwen3_8b())
    layer = {
        "input_layernorm.weight": (4096,),
        "self_attn.q_proj.weight": (4096, 4096),
        "self_attn.k_proj.weight": (1024, 4096),
        "self_attn.v_proj.weight": (1024, 4096),
        "self_attn.o_proj.weight": (4096, 4096),
        "self_attn.q_norm.weight": (128,),
        "self_attn.k_norm.weight": (128,),
        "post_attention_layernorm.weight": (4096,),
        "mlp.gate_proj.weight": (12288, 4096),
        "mlp.up_proj.weight": (12288, 4096),
        "mlp.down_proj.weight": (4096, 12288),
    }
    expected: dict[str, tuple[int, ...]] = {
        "fc.weight": (4096, 20480),
        "hidden_norm.weight": (4096,),
        "norm.weight": (4096,),
    }
    for index in range(5):
        expected |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    found = {name: tuple(tensor.shape) for name, tensor in drafter.state_dict().items()}
    assert found == expected
    assert len(found) == 58
    assert sum(p.numel() for p in drafter.parameters()) == 1_048_626_432


def test_initial_weights(drafter_of: Callable[..., Drafter]) -> None:
    for name, parameter in drafter_of(num_layers=4).named_parameters():
        if parameter.dim() == 1:
            assert torch.equal(parameter, torch.ones_like(parameter)), name
        else:
            assert abs(parameter.mean().item()) < 2e-3, name
            assert 0.018 < parameter.std().item() < 0.022, name


def qwen3_oracle(drafter: Drafter) -> Qwen3Config:
    shape = drafter.config
    config = Qwen3Config(
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_key_value_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate_size,
        rms_norm_eps=shape.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
    )
    config._attn_implementation = "eager"  # noqa: SLF001 - what from_pretrained sets
    return config


def test_attention_is_qwen3s_over_context_and_draft(drafter_of: Callable[..., Drafter]) -> None:
    drafter = drafter_of()
    ours: Any = drafter.layers[0]
    config = qwen3_oracle(drafter)
    oracle = Qwen3Attention(config, layer_idx=0)
    oracle.load_state_dict(ours.self_attn.state_dict())
    make_mlp: Any = Qwen3MLP
    mlp = make_mlp(config)
    mlp.load_state_dict(ours.mlp.state_dict())
    context, draft = torch.randn(2, 7, 32), torch.randn(2, 4, 32)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 5, 6, 7, 8]]).expand(2, -1)
    both = torch.cat((context, draft), dim=1)
    angles = Qwen3RotaryEmbedding(config)(both, positions)
    wanted, _ = oracle(both, position_embeddings=angles, attention_mask=None)
    found = ours.self_attn(
        draft,
        context_BCD=context,
        rotary=Rotary.of(positions, head_dim=8, theta=drafter.config.rope_theta),
        attend=attend_to_all,
        cache=None,
    )
    torch.testing.assert_close(found, wanted[:, -4:])
    torch.testing.assert_close(ours.mlp(draft), mlp(draft))


def test_every_parameter_learns_and_the_target_does_not(
    target: TinyTarget, drafter_of: Callable[..., Drafter], rows_of: Callable[..., Rows]
) -> None:
    drafter = drafter_of()
    backward(draft_loss(drafter, target=target, rows=rows_of(), objective=OBJECTIVE).numerator)
    for name, parameter in drafter.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert all(parameter.grad is None for parameter in target.model.parameters())


def test_checkpointed_layers_give_the_same_gradients(
    target: TinyTarget, drafter_of: Callable[..., Drafter], rows_of: Callable[..., Rows]
) -> None:
    rows, gradients = rows_of(), []
    for checkpoint_layers in (False, True):
        drafter = drafter_of(checkpoint_layers=checkpoint_layers)
        backward(draft_loss(drafter, target=target, rows=rows, objective=OBJECTIVE).numerator)
        gradients.append([parameter.grad for parameter in drafter.parameters()])
    for kept, recomputed in zip(*gradients, strict=True):
        assert kept is not None
        assert recomputed is not None
        assert torch.equal(kept, recomputed)


def drafted(drafter: Drafter, dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(2)
    noise, states = torch.randn(1, 4, 32), torch.randn(1, 6, 96)
    out: torch.Tensor = drafter(
        noise.to(dtype), target_hidden_BCF=states.to(dtype), positions_BT=torch.arange(10)[None]
    )
    return out


def test_computes_in_the_dtype_of_its_input(drafter_of: Callable[..., Drafter]) -> None:
    drafter = drafter_of()
    out = drafted(drafter, torch.bfloat16)
    backward(out.sum())
    assert out.dtype == torch.bfloat16
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in drafter.parameters())
    torch.testing.assert_close(out.float(), drafted(drafter, torch.float32), atol=0.05, rtol=0.05)


def test_low_precision_parameters_are_not_widened_silently(
    drafter_of: Callable[..., Drafter],
) -> None:
    drafter = drafter_of().bfloat16()
    assert drafted(drafter, torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(TypeError, match="convert the drafter"):
        drafted(drafter, torch.float32)
