"""The frozen target: the states of its tapped layers, its embedding and its head.

States are taken by hooks on the tapped layers alone, and the head is not run for them: asking
transformers for all hidden states would keep those of every layer.

Shape suffixes: B sequences, T tokens, D hidden size, F = tapped layers * D, V vocabulary. `...`
stands for any leading dimensions.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from train.frozen_target import TargetStates
from train.settings import ConfigError
from train.target_ends import ends_of
from train.target_mask import attention_mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor
    from transformers import Cache, PreTrainedConfig

    from train.frozen_target import View


class Target:
    """A causal language model of transformers without gradient; see `train.frozen_target`.

    Args:
        model: A `PreTrainedModel` with a head, on the device and in the dtype that it keeps.
        tokenizer: Its tokenizer, with a chat template.
        layer_ids: Decoder layers whose outputs `states` returns, 0-based and rising.
        eos_id: Token that ends a turn; None takes the tokenizer's.

    Raises:
        ConfigError: A layer id or the end-of-turn token does not exist.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        layer_ids: tuple[int, ...],
        eos_id: int | None = None,
    ) -> None:
        self.model = model
        self.model.eval().requires_grad_(requires_grad=False)
        self.tokenizer = tokenizer
        self.config: PreTrainedConfig = model.config.get_text_config()
        self.layer_ids = layer_ids
        self.eos_id: int = checked_eos_id(tokenizer, self.config, eos_id)
        self._decoder: Any = self.model.get_decoder()
        layers = decoder_layers(model)
        # Of the last layer, transformers and engines give only what the final norm made of it.
        last = len(layers) - 1
        if not all(layer < last for layer in layer_ids):
            raise ConfigError(
                [f"target.layer_ids: found {list(layer_ids)}, wanted numbers below {last}"]
            )
        try:
            self._ends = ends_of(model)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except (RuntimeError, IndexError) as error:  # an inconsistent configuration
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError([f"target.path: {type(model).__name__} fails: {reason}"]) from error
        # transformers renamed the argument in 5.24 and warns about the former name.
        parameters = inspect.signature(self._decoder.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._tapped: dict[int, Tensor] = {}
        for layer in layer_ids:
            layers[layer].register_forward_hook(partial(self._keep, layer))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Element type of weights and states."""
        dtype: torch.dtype = self.model.dtype
        return dtype

    def embed(self, ids_BT: Tensor) -> Tensor:
        """Return the input embeddings [..., D], scaled as the target scales them."""
        return self._ends.embedded(self.model.get_input_embeddings()(ids_BT))

    def logits(self, final_D: Tensor) -> Tensor:
        """Return the logits [..., V] of states [..., D], scaled and capped; gradients flow."""
        return self._ends.logits(self.model.get_output_embeddings()(final_D))

    @torch.no_grad()
    def states(
        self, ids_BT: Tensor, *, cache: Cache | None = None, view: View | None = None
    ) -> TargetStates:
        """Run the decoder, and not the head.

        Rows must be padded on the right: attention is causal, so what follows a token cannot change
        its states.

        Args:
            ids_BT: Token ids; with a cache they continue what the cache holds.
            cache: Keys and values of earlier tokens, extended in place.
            view: Positions and visibility; None means one after the other, each seeing all before.
        """
        self._tapped.clear()
        arguments: dict[str, Any] = {self._cache_name: cache}
        if view is not None:
            arguments["position_ids"] = view.positions_BT
            arguments["attention_mask"] = attention_mask(view, config=self.config, dtype=self.dtype)
        output = self._decoder(input_ids=ids_BT, use_cache=cache is not None, **arguments)
        tapped = [self._tapped[layer] for layer in self.layer_ids]
        self._tapped.clear()
        return TargetStates(
            final_BTD=output.last_hidden_state, tapped_BTF=torch.cat(tapped, dim=-1)
        )

    def _keep(self, layer: int, _module: nn.Module, _inputs: Any, output: Any) -> None:
        """Keep a layer's output; some models return it inside a tuple."""
        self._tapped[layer] = output[0] if isinstance(output, tuple) else output


def decoder_layers(model: Any) -> Sequence[nn.Module]:
    """Return the decoder layers of a causal language model, whatever it calls them.

    Raises:
        ConfigError: None of its parts is a list of as many modules as it has layers.
    """
    num_layers = model.config.get_text_config().num_hidden_layers
    decoder = model.get_decoder()
    for part in () if decoder is None else decoder.children():
        if isinstance(part, nn.ModuleList) and len(part) == num_layers:
            return list(part)
    raise ConfigError([f"target.path: {type(model).__name__} has no decoder layers to tap"])


def checked_eos_id(tokenizer: Any, config: PreTrainedConfig, eos_id: int | None) -> int:
    """Return the end-of-turn id.

    Raises:
        ConfigError: None is known, or it is no row of the vocabulary.
    """
    found = tokenizer.eos_token_id if eos_id is None else eos_id
    if found is None or not 0 <= found < config.vocab_size:
        raise ConfigError(
            [f"target.eos_token_id: found {found}, wanted an id below {config.vocab_size}"]
        )
    return int(found)


@contextmanager
def computing_in(target: Target, dtype: str) -> Iterator[None]:
    """Let the target compute in another dtype for a while.

    Only weights are converted, and to float32 and back bfloat16 loses nothing. `model.to` would
    convert buffers as well, and rotary frequencies that were bfloat16 once stay wrong.

    Args:
        target: The target.
        dtype: As `eval.dtype`: `target` leaves it alone.
    """
    own_dtype = target.dtype
    if dtype != "target":
        _convert_weights(target, getattr(torch, dtype))
    try:
        yield
    finally:
        _convert_weights(target, own_dtype)


def _convert_weights(target: Target, dtype: torch.dtype) -> None:
    for weight in target.model.parameters():
        weight.data = weight.data.to(dtype)
