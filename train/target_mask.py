"""The attention mask that transformers takes where a plain causal order does not say what is seen.

Shape suffixes: B sequences, T tokens that are read, S keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig

    from train.frozen_target import View


def attention_mask(
    view: View, *, config: PreTrainedConfig, dtype: torch.dtype
) -> Tensor | dict[str, Tensor]:
    """Return the mask in the form that the decoder of a target takes.

    Layers with a sliding window see less of the same view; a model that mixes both kinds of layers
    takes one mask for each kind.

    Args:
        view: What is seen; every token must see at least itself.
        config: The target's text configuration.
        dtype: The target's element type.
    """
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    full_BTS = view.visible_BTS
    if window is None or kinds == {"full_attention"}:
        return _in_form(full_BTS, config, dtype)
    distance_BTS = view.positions_BT[:, :, None] - view.key_positions_BS[:, None]
    sliding_BTS = full_BTS & (distance_BTS < window)
    if len(kinds) < 2:  # noqa: PLR2004  one kind of layer, which slides
        return _in_form(sliding_BTS, config, dtype)
    masks = {"full_attention": full_BTS, "sliding_attention": sliding_BTS}
    return {kind: _in_form(mask_BTS, config, dtype) for kind, mask_BTS in masks.items()}


def _in_form(visible_BTS: Tensor, config: Any, dtype: torch.dtype) -> Tensor:
    visible_B1TS = visible_BTS[:, None]
    if config._attn_implementation != "eager":  # noqa: SLF001  transformers has no other name for it
        return visible_B1TS
    # Eager attention adds the mask to the scores.
    hidden = torch.finfo(dtype).min
    return torch.zeros_like(visible_B1TS, dtype=dtype).masked_fill(~visible_B1TS, hidden)
