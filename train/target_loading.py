"""Find a target where a run file says it is, and load it with its tokenizer."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from train.hub import where_to_look
from train.layer_ids import tapped_layer_ids
from train.progress import to_stderr
from train.settings import ConfigError
from train.target import Target
from train.target_section import PACKAGE_PREFIX, is_local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from train.config import TargetConfig


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
    config: TargetConfig,
    *,
    num_taps: int = 1,
    device: torch.device | None = None,
    say: Callable[[str], None] = to_stderr,
) -> Target:
    """Load the target and its tokenizer.

    Args:
        config: Where it is and how to run it.
        num_taps: Layers to tap when `config.layer_ids` is unset.
        device: Where to put it; the CPU when unset.
        say: Told what is waited for.

    Raises:
        ConfigError: Nothing loadable is there, or the settings do not fit it.
    """
    device = device or torch.device("cpu")
    folder, gguf_file = locate(config.path)
    loaders: tuple[Any, Any] = (AutoTokenizer, AutoModelForCausalLM)
    where = where_to_look(folder, say=say)
    with reading(config):
        tokenizer = loaders[0].from_pretrained(folder, gguf_file=gguf_file, **where)
        require_chat_template(tokenizer)
        model = loaders[1].from_pretrained(
            folder,
            gguf_file=gguf_file,
            dtype=dtype_for(config.dtype, device),
            # None lets transformers choose: some architectures lack sdpa.
            attn_implementation=None if config.attention == "auto" else config.attention,
            **({} if gguf_file is None else unpacked()),
            **where,
        )
    num_layers = model.config.get_text_config().num_hidden_layers
    return Target(
        model.to(device),
        tokenizer,
        layer_ids=layer_ids_of(config, num_layers=num_layers, num_taps=num_taps),
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


def layer_ids_of(config: TargetConfig, *, num_layers: int, num_taps: int) -> tuple[int, ...]:
    """Return the layers to tap: those that are set, else as many as wanted, evenly spread.

    Raises:
        ConfigError: The target has too few layers for so many taps.
    """
    if config.layer_ids:
        return config.layer_ids
    try:
        return tapped_layer_ids(num_layers, num_taps)
    except ValueError as error:
        raise ConfigError([f"draft.num_layers: {error}; or set target.layer_ids"]) from error
