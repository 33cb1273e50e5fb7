"""The `[target]` section of a run file: which model, and how it runs; imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

PACKAGE_PREFIX = "package:"

TokenId = Annotated[int, msgspec.Meta(ge=0)]


class TargetConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The frozen language model whose tokens the drafter must predict."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    """A model folder, a `.gguf` file, a hub id, or `package:NAME/FILE` for a file inside an
    installed package of the environment that runs the training."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Element type of weights and states; auto is float32 on CPU and bfloat16 on CUDA."""
    attention: Literal["auto", "sdpa", "eager"] = "auto"
    """Attention implementation of the target in transformers; auto is sdpa where the architecture
    has it."""
    layer_ids: tuple[TokenId, ...] | None = None
    """Decoder layers whose outputs the drafter reads, 0-based; unset spreads `draft.num_layers`
    of them from the second layer to the third from last."""
    eos_token_id: TokenId | None = None
    """Token id that ends a turn; unset takes the tokenizer's."""


def absolute_target(path: str, folder: Path) -> str:
    """Return a target that is a local path as an absolute one; anything else as it is."""
    if is_local_path(path) or (folder / path).exists():
        return str(folder / Path(path).expanduser())
    return path


def is_local_path(target_path: str) -> bool:
    """Return whether a target is written as a path and not as a hub id or package file."""
    if target_path.startswith(PACKAGE_PREFIX):
        return False
    return target_path.startswith((".", "/", "~")) or target_path.endswith(".gguf")
