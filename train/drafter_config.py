"""The shape of a drafter; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from train.settings import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from train.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class DrafterConfig:
    """Everything that fixes a drafter's tensors, and how it reads its inputs.

    Attributes:
        hidden_size: Width of the residual stream; equals the target's.
        num_layers: Draft decoder layers.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads; divides `num_attention_heads`.
        head_dim: Width of one head, even.
        intermediate_size: Width of the gated MLP.
        vocab_size: The target's vocabulary, padding rows of its embedding included.
        block_size: Tokens per block, the known anchor token included.
        mask_token_id: Existing row of the target's embedding that stands for "to be predicted".
        target_layer_ids: Tapped target layers, in the convention of `tapped_layer_ids`.
        num_target_layers: Decoder layers of the target.
        rms_norm_eps: Added to the mean square in every norm.
        rope_theta: Base of the rotary frequencies; plain rotary, whatever the target scales.
        max_position_embeddings: Longest sequence, in tokens, that the target was made for.
        initializer_range: Standard deviation of the initial matrices.

    Raises:
        ValueError: Two fields contradict each other; the message names both with their values.
    """

    hidden_size: int
    num_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    max_position_embeddings: int = 32_768
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        ids = self.target_layer_ids
        rules = {
            "block_size must be at least 2": self.block_size > 1,
            "num_layers must be at least 1": self.num_layers > 0,
            "head_dim must be even": self.head_dim % 2 == 0,
            "num_key_value_heads must divide num_attention_heads": (
                self.num_attention_heads % self.num_key_value_heads == 0
            ),
            f"mask_token_id must be a row of the vocabulary, below {self.vocab_size}: found"
            f" {self.mask_token_id}": 0 <= self.mask_token_id < self.vocab_size,
            "target_layer_ids must increase strictly and not be empty": (
                bool(ids) and list(ids) == sorted(set(ids))
            ),
            "target_layer_ids must be layers of the target": (
                all(0 <= layer < self.num_target_layers for layer in ids)
            ),
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise ValueError("; ".join(broken))

    @property
    def target_hidden_size(self) -> int:
        """Width of one token's concatenated target states."""
        return len(self.target_layer_ids) * self.hidden_size


def drafter_config_for(
    target: PreTrainedConfig,
    *,
    num_layers: int,
    block_size: int,
    mask_token_id: int,
    target_layer_ids: tuple[int, ...],
) -> DrafterConfig:
    """Derive a drafter's shape from its target's text configuration.

    Head counts, MLP width, norm epsilon and rotary base are the target's; the MLP of a target that
    names no width is 4 hidden sizes wide. Rotary scaling, partial and multimodal rotary are
    dropped: every serving engine rotates the drafter plainly.

    Args:
        target: Configuration of the target's text model (`config.get_text_config()`).
        num_layers: Draft decoder layers.
        block_size: Tokens per block, the anchor included.
        mask_token_id: Row of the target's embedding that real text never uses.
        target_layer_ids: Tapped layers, usually from `tapped_layer_ids`.

    Raises:
        ValueError: The result is contradictory.
    """
    num_heads = target.num_attention_heads
    return DrafterConfig(
        hidden_size=target.hidden_size,
        num_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=getattr(target, "num_key_value_heads", None) or num_heads,
        head_dim=getattr(target, "head_dim", None) or target.hidden_size // num_heads,
        intermediate_size=getattr(target, "intermediate_size", None) or 4 * target.hidden_size,
        vocab_size=target.vocab_size,
        block_size=block_size,
        mask_token_id=mask_token_id,
        target_layer_ids=target_layer_ids,
        num_target_layers=target.num_hidden_layers,
        rms_norm_eps=getattr(target, "rms_norm_eps", 1e-6),
        rope_theta=_rope_theta(target),
        max_position_embeddings=getattr(target, "max_position_embeddings", 32_768),
    )


def drafter_config_of(
    config: TrainConfig,
    target: PreTrainedConfig,
    *,
    mask_token_id: int,
    target_layer_ids: tuple[int, ...],
) -> DrafterConfig:
    """Return the shape of a run's drafter.

    Args:
        config: The run.
        target: Configuration of the target's text model.
        mask_token_id: As `draft.mask_token_id`, or what was chosen where that is `auto`.
        target_layer_ids: As `target.layer_ids`, or what follows where that is unset.

    Raises:
        ConfigError: The target's shape and the settings contradict each other.
    """
    try:
        return drafter_config_for(
            target,
            num_layers=config.draft.num_layers,
            block_size=config.draft.block_size,
            mask_token_id=mask_token_id,
            target_layer_ids=target_layer_ids,
        )
    except ValueError as error:
        raise ConfigError([f"draft: {error}"]) from error


def _rope_theta(target: PreTrainedConfig) -> float:
    """Read the rotary base, which transformers keeps flat, or per layer type for some models."""
    parameters: dict[str, Any] = getattr(target, "rope_parameters", None) or {}
    flat = parameters.get("full_attention", parameters)
    return float(flat.get("rope_theta") or getattr(target, "rope_theta", 10_000.0))
