"""The block drafter: a small non-causal transformer that reads the target's hidden states.

Shape suffixes: B sequences, C new context tokens, Q draft tokens (blocks * block size), T = C + Q
(with a cache: everything visible), D hidden size, F = tapped layers * D, H query heads, G key/value
heads, E head dim.

What is unusual in it:
- Context tokens are keys and values only. Their states are projected and normed once, shared by all
  layers, and never updated; they have no query, no output projection and no MLP.
- The same k_proj and v_proj serve context and draft tokens, but `input_layernorm` touches draft
  tokens only.
- The embedding and the head are the frozen target's, so neither is a parameter here.
- Training and cached decoding run the same code; they differ in `attend` and `cache` alone.

Source: DFlash, arXiv 2602.06036 v2; tensor names as in z-lab's checkpoints, which SGLang and vLLM
load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.drafter_config import DrafterConfig


class Attend(Protocol):
    """Scaled dot-product attention in which the mask is already decided."""

    def __call__(self, q_BHQE: Tensor, k_BGTE: Tensor, v_BGTE: Tensor) -> Tensor:
        """Return the attended values [B, H, Q, E]; scores are scaled by E ** -0.5."""
        ...


def attend_to_all(q_BHQE: Tensor, k_BGTE: Tensor, v_BGTE: Tensor) -> Tensor:
    """Attend without a mask, as decoding does: one block sees its context and itself."""
    return functional.scaled_dot_product_attention(q_BHQE, k_BGTE, v_BGTE, enable_gqa=True)


class ContextCache:
    """Keys and values of the context tokens that a decode has seen, for every layer.

    The block's own keys and values are written behind the context for the duration of one forward
    and overwritten by the next. All rows grow alike; a row with fewer tokens has padding between.

    Args:
        config: The drafter's shape.
        max_tokens: Context plus one block, in tokens, that fit without moving to a larger buffer.
        like: A tensor with the rows, device and dtype of what the drafter reads.
    """

    def __init__(self, config: DrafterConfig, *, max_tokens: int, like: Tensor) -> None:
        shape = (like.shape[0], config.num_key_value_heads, max_tokens, config.head_dim)
        self.num_tokens = 0
        self._keys = [like.new_empty(shape) for _ in range(config.num_layers)]
        self._values = [like.new_empty(shape) for _ in range(config.num_layers)]

    def extend(self, layer: int, *, k_BGTE: Tensor, v_BGTE: Tensor) -> tuple[Tensor, Tensor]:
        """Write behind the committed context; return everything that is visible then."""
        end = self.num_tokens + k_BGTE.shape[2]
        for buffers, new in ((self._keys, k_BGTE), (self._values, v_BGTE)):
            if end > buffers[layer].shape[2]:
                buffers[layer] = torch.cat(
                    (buffers[layer], new, torch.zeros_like(buffers[layer])), 2
                )
            buffers[layer][:, :, self.num_tokens : end] = new
        return self._keys[layer][:, :, :end], self._values[layer][:, :, :end]

    def commit(self, num_context: int) -> None:
        """Keep the first `num_context` tokens of what `extend` wrote last."""
        self.num_tokens += num_context


@dataclass(frozen=True)
class Rotary:
    """Cosines and sines of the positions of context and draft tokens, context first, float32."""

    cos_B1TE: Tensor
    sin_B1TE: Tensor

    @classmethod
    def of(cls, positions_BT: Tensor, *, head_dim: int, theta: float) -> Rotary:
        """Compute the angles; in float32, because bfloat16 cannot count past 256."""
        exponent_E = torch.arange(0, head_dim, 2, device=positions_BT.device).float() / head_dim
        angle_BTE = positions_BT[..., None].float() * theta**-exponent_E
        angle_B1TE = torch.cat((angle_BTE, angle_BTE), dim=-1)[:, None]
        return cls(angle_B1TE.cos(), angle_B1TE.sin())

    def rotate_last(self, x_BHTE: Tensor) -> Tensor:
        """Rotate tokens that stand at the end of the positions, in the half-split layout."""
        num_tokens = x_BHTE.shape[2]
        first, second = x_BHTE.float().chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        cos, sin = self.cos_B1TE[:, :, -num_tokens:], self.sin_B1TE[:, :, -num_tokens:]
        return (x_BHTE * cos + turned * sin).to(x_BHTE.dtype)


class RMSNorm(nn.Module):
    """Root-mean-square norm that computes in float32 and answers in its input's dtype."""

    def __init__(self, size: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Norm the last dimension."""
        weight = self.weight.float()
        return functional.rms_norm(x.float(), weight.shape, weight, self.eps).to(x.dtype)


class DrafterAttention(nn.Module):
    """Attention of the draft tokens over context and draft tokens."""

    def __init__(self, config: DrafterConfig, *, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        query_size = config.num_attention_heads * config.head_dim
        key_size = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, key_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, key_size, bias=False)
        self.o_proj = nn.Linear(query_size, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(config.head_dim, eps=config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, eps=config.rms_norm_eps)

    def forward(
        self,
        x_BQD: Tensor,
        *,
        context_BCD: Tensor,
        rotary: Rotary,
        attend: Attend,
        cache: ContextCache | None,
    ) -> Tensor:
        """Return the attention's contribution to the residual stream, [B, Q, D]."""
        q_BHQE = rotary.rotate_last(self.q_norm(self._heads(self.q_proj(x_BQD))))
        # Projected apart and joined afterwards: joining the inputs would copy the context, which is
        # several times wider than its keys, and keep a copy per layer for the backward pass.
        sources = (context_BCD, x_BQD)
        k_BGTE = self._heads(torch.cat([self.k_proj(source) for source in sources], dim=1))
        v_BGTE = self._heads(torch.cat([self.v_proj(source) for source in sources], dim=1))
        k_BGTE = rotary.rotate_last(self.k_norm(k_BGTE))
        if cache is not None:
            k_BGTE, v_BGTE = cache.extend(self.layer, k_BGTE=k_BGTE, v_BGTE=v_BGTE)
        attended_BHQE = attend(q_BHQE, k_BGTE, v_BGTE)
        out: Tensor = self.o_proj(attended_BHQE.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        """Split [B, T, heads * E] into [B, heads, T, E]."""
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class DrafterMLP(nn.Module):
    """SwiGLU feed-forward of the draft tokens."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x_BQD: Tensor) -> Tensor:
        """Return the MLP's contribution to the residual stream."""
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x_BQD)) * self.up_proj(x_BQD))
        return out


class DrafterLayer(nn.Module):
    """One pre-norm decoder layer."""

    def __init__(self, config: DrafterConfig, *, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = DrafterAttention(config, layer=layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = DrafterMLP(config)

    def forward(
        self,
        x_BQD: Tensor,
        *,
        context_BCD: Tensor,
        rotary: Rotary,
        attend: Attend,
        cache: ContextCache | None,
    ) -> Tensor:
        """Return the residual stream after this layer."""
        x_BQD = x_BQD + self.self_attn(
            self.input_layernorm(x_BQD),
            context_BCD=context_BCD,
            rotary=rotary,
            attend=attend,
            cache=cache,
        )
        out: Tensor = x_BQD + self.mlp(self.post_attention_layernorm(x_BQD))
        return out


class Drafter(nn.Module):
    """The trainable part of the pair; everything else is the target's.

    Parameters are float32 when made, drawn from torch's global generator. `forward` computes in the
    dtype of its inputs, so with a bfloat16 target the same float32 parameters train under autocast.

    Args:
        config: The shape.
        checkpoint_layers: Recompute each layer in the backward pass instead of keeping its
            activations.
    """

    def __init__(self, config: DrafterConfig, *, checkpoint_layers: bool = False) -> None:
        super().__init__()
        self.config = config
        self.checkpoint_layers = checkpoint_layers
        self.fc = nn.Linear(config.target_hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(
            DrafterLayer(config, layer=layer) for layer in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        for parameter in _matrices(list(self.parameters())):
            nn.init.normal_(parameter, std=config.initializer_range)

    def forward(
        self,
        noise_BQD: Tensor,
        *,
        target_hidden_BCF: Tensor,
        positions_BT: Tensor,
        attend: Attend = attend_to_all,
        cache: ContextCache | None = None,
    ) -> Tensor:
        """Return the states that the target's head turns into draft logits.

        Args:
            noise_BQD: The target's embedding of the block tokens, of which most are the mask token.
            target_hidden_BCF: The target's tapped states of the context tokens. With a cache, only
                those that it does not hold yet.
            positions_BT: Absolute positions of those context tokens, then of the draft tokens.
            attend: Attention with the training mask; the default sees everything.
            cache: Earlier context; extended by these context tokens. No gradient.

        Returns:
            Normed states [B, Q, D] in the dtype of `noise_BQD`.

        Raises:
            TypeError: The parameters are neither float32 nor of the dtype of `noise_BQD`.
        """
        needs_cast = self._needs_cast(noise_BQD.dtype)
        with torch.autocast(noise_BQD.device.type, dtype=noise_BQD.dtype, enabled=needs_cast):
            context_BCD = self.hidden_norm(self.fc(target_hidden_BCF))
            rotary = Rotary.of(
                positions_BT, head_dim=self.config.head_dim, theta=self.config.rope_theta
            )
            x_BQD = noise_BQD
            for layer in self.layers:
                run = partial(
                    layer, context_BCD=context_BCD, rotary=rotary, attend=attend, cache=cache
                )
                if self.checkpoint_layers and torch.is_grad_enabled():
                    # Reentrant would compile attention twice, the second time in the backward pass.
                    # There is no dropout, so no random state is worth saving.
                    x_BQD = checkpoint(run, x_BQD, use_reentrant=False, preserve_rng_state=False)
                else:
                    x_BQD = run(x_BQD)
            out_BQD: Tensor = self.norm(x_BQD)
        if cache is not None:
            cache.commit(context_BCD.shape[1])
        return out_BQD

    def _needs_cast(self, compute_dtype: torch.dtype) -> bool:
        """Return whether the parameters must be cast to compute in a dtype."""
        parameter_dtype = self.fc.weight.dtype
        if parameter_dtype not in (compute_dtype, torch.float32):
            raise TypeError(
                f"the drafter's parameters are {parameter_dtype} and its input is {compute_dtype}; "
                "convert the drafter first"
            )
        return parameter_dtype != compute_dtype


def _matrices(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """Pick the weights of linear maps; norms, which are vectors, keep their ones."""
    return [parameter for parameter in parameters if parameter.dim() > 1]
