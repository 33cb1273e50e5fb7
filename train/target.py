"""The frozen target model: loading it, and the states of its tapped layers.

Shape suffixes: B sequences, T tokens, D hidden size, F = tapped layers * D, V vocabulary. `...`
stands for any leading dimensions.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from train.frozen_target import TargetStates
from train.layer_ids import tapped_layer_ids
from train.settings import ConfigError
from train.target_ends import ends_of
from train.target_mask import attention_mask
from train.target_section import PACKAGE_PREFIX, is_local_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor
    from transformers import Cache, PreTrainedConfig

    from train.config import TargetConfig
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


def locate(path: str) -> tuple[str, str | None]:
    """Return what transformers loads a target from: folder or hub id, and a GGUF file's name.

    Args:
        path: As `target.path` in a run file.

    Raises:
        ConfigError: The path, or the package or the file in it, does not exist here.
    """
    if path.startswith(PACKAGE_PREFIX):
        file = file_in_package(path.removeprefix(PACKAGE_PREFIX))
    else:
        file = Path(path).expanduser()
        if is_local_path(path) and not file.exists():
            raise ConfigError([f"target.path: nothing at {path}"])
        if not file.is_file():
            return (str(file) if file.is_dir() else path), None
    return str(file.parent), file.name


def file_in_package(name: str) -> Path:
    """Find `PACKAGE/FILE` without importing the package, whose own requirements may be missing.

    Raises:
        ConfigError: The package is not installed here, or has no such file.
    """
    package, _, inside = name.partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError([f"target.path: package {package!r} is not installed here"])
    places = [Path(place) / inside for place in spec.submodule_search_locations]
    for file in places:
        if file.is_file():
            return file
    raise ConfigError([f"target.path: no file at {', '.join(map(str, places))}"])


def dtype_for(name: str, device: torch.device) -> torch.dtype:
    """Return the element type that `target.dtype` means on a device."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def load_target(
    config: TargetConfig, *, num_taps: int = 1, device: torch.device | None = None
) -> Target:
    """Load the target and its tokenizer.

    Args:
        config: Where it is and how to run it.
        num_taps: Layers to tap when `config.layer_ids` is unset.
        device: Where to put it; the CPU when unset.

    Raises:
        ConfigError: Nothing loadable is there, or the settings do not fit it.
    """
    device = device or torch.device("cpu")
    folder, gguf_file = locate(config.path)
    loaders: tuple[Any, Any] = (AutoTokenizer, AutoModelForCausalLM)
    with reading(config):
        tokenizer = loaders[0].from_pretrained(folder, gguf_file=gguf_file)
        require_chat_template(tokenizer)
        model = loaders[1].from_pretrained(
            folder,
            gguf_file=gguf_file,
            dtype=dtype_for(config.dtype, device),
            # None lets transformers choose: some architectures lack sdpa.
            attn_implementation=None if config.attention == "auto" else config.attention,
            **({} if gguf_file is None else unpacked()),
        )
    num_layers = model.config.get_text_config().num_hidden_layers
    return Target(
        model.to(device),
        tokenizer,
        layer_ids=config.layer_ids or default_layer_ids(num_layers, num_taps=num_taps),
        eos_id=config.eos_token_id,
    )


def unpacked() -> dict[str, Any]:
    """Return what makes transformers load a GGUF file into plain weights.

    From 5.24 on it would otherwise leave them packed where it finds kernels for that, on the hub if
    need be: slower in bfloat16, and other weights than a warm start and an evaluation can read.
    """
    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}


def require_chat_template(tokenizer: Any) -> None:
    """Check that a target says how conversations are written.

    Raises:
        ValueError: It does not.
    """
    if not tokenizer.chat_template:
        raise ValueError("its tokenizer has no chat template, as base models have none")


@contextlib.contextmanager
def reading(config: TargetConfig) -> Iterator[None]:
    """Silence transformers' progress bars inside, and say what it cannot load.

    Raises:
        ConfigError: transformers raised an error.
    """
    try:
        # Its bars, the one for GGUF not to be switched off, write to what sys.stderr is at the
        # time; the handlers of its log keep the stream that they started with.
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    except Exception as error:  # damaged files raise errors of every package that reads them
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError([f"target.path: cannot load {config.path}: {reason}"]) from error


def default_layer_ids(num_layers: int, *, num_taps: int) -> tuple[int, ...]:
    """Return evenly spread layer ids.

    Raises:
        ConfigError: The target has too few layers for so many taps.
    """
    try:
        return tapped_layer_ids(num_layers, num_taps)
    except ValueError as error:
        raise ConfigError([f"draft.num_layers: {error}; or set target.layer_ids"]) from error
