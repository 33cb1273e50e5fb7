from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.autograd import backward
from transformers import GPT2Config, LlamaConfig, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3MLP, Qwen3RotaryEmbedding

from tests.train.conftest import TinyTarget, tiny_config
from train.attention import DenseMask
from train.drafter import Drafter, Rotary, attend_to_all
from train.drafter_config import DrafterConfig, drafter_config_for
from train.layer_ids import tapped_layer_ids
from train.objective import Objective, Rows, draft_loss
from train.slot_weights import DecayedWeights

if TYPE_CHECKING:
    from collections.abc import Callable

OBJECTIVE = Objective(num_anchors=6, weights=DecayedWeights(4.0), attention=DenseMask())


@pytest.mark.parametrize(
    ("num_layers", "five", "three"),
    [
        (18, (1, 4, 8, 12, 15), (1, 8, 15)),
        (24, (1, 6, 11, 16, 21), (1, 11, 21)),
        (28, (1, 7, 13, 19, 25), (1, 13, 25)),
        (30, (1, 8, 14, 20, 27), (1, 14, 27)),
        (32, (1, 8, 15, 22, 29), (1, 15, 29)),
        (36, (1, 9, 17, 25, 33), (1, 17, 33)),
        (48, (1, 12, 23, 34, 45), (1, 23, 45)),
        (64, (1, 16, 31, 46, 61), (1, 31, 61)),
    ],
)
def test_tapped_layers_are_the_published_ones(
    num_layers: int, five: tuple[int, ...], three: tuple[int, ...]
) -> None:
    assert tapped_layer_ids(num_layers, 5) == five
    assert tapped_layer_ids(num_layers, 3) == three
    assert tapped_layer_ids(num_layers, 1) == (num_layers // 2,)


def test_tapped_layers_are_different_and_never_the_last() -> None:
    for num_layers in range(3, 40):
        for num_taps in range(1, max(1, num_layers - 3) + 1):
            ids = tapped_layer_ids(num_layers, num_taps)
            assert list(ids) == sorted(set(ids))
            assert ids[-1] < num_layers - 1


@pytest.mark.parametrize(("num_layers", "num_taps"), [(2, 1), (6, 4), (30, 0)])
def test_too_many_taps_are_refused(num_layers: int, num_taps: int) -> None:
    with pytest.raises(ValueError, match=f"cannot tap {num_taps} layers"):
        tapped_layer_ids(num_layers, num_taps)


def rotary(theta: float, **scaling: Any) -> Any:
    return {"rope_type": "default", "rope_theta": theta} | scaling


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


def qwen3_oracle(drafter: Drafter) -> Qwen3Config:
    shape = drafter.config
    config = Qwen3Config(
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_key_value_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate_size,
        rms_norm_eps=shape.rms_norm_eps,
        rope_parameters=rotary(shape.rope_theta),
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
