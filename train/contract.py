"""What must be the same when a run is resumed."""

from __future__ import annotations

import hashlib
import json
import struct
from array import array
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from train.config import to_builtins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from train.config import TrainConfig
    from train.data import Sample
    from train.inputs import Inputs
    from train.target import Target

SETTINGS = (
    "data.max_length",
    "data.buckets",
    "data.packing",
    "train.seed",
    "train.micro_batch",
    "train.accumulation",
    "train.optimizer",
)
"""Settings that say which samples a step trains on, or what the saved tensors mean."""

DATA = "data.train"


def contract_of(config: TrainConfig, inputs: Inputs) -> dict[str, Any]:
    """Return what a checkpoint relies on, by dotted name; plain values that JSON keeps."""
    target, drafter = inputs.pair.target, inputs.pair.drafter
    shape = {f"draft.{name}": value for name, value in asdict(drafter.config).items()}
    resolved = to_builtins(config)
    settings = {name: _at(resolved, name) for name in SETTINGS}
    found = {
        "target.dtype": str(target.dtype).removeprefix("torch."),
        **shape,
        "target.tokenizer": tokenizer_fingerprint(target),
        "target.weights": weights_fingerprint(target),
        **settings,
        DATA: data_fingerprint(inputs.training.samples),
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def differences(
    found: Mapping[str, Any], saved: Mapping[str, Any], *, allow_data_change: bool
) -> list[str]:
    """Return one line for each thing that differs, with both values.

    Args:
        found: The contract of this start.
        saved: That of the checkpoint.
        allow_data_change: The user wants to go on with other data.
    """
    lines = []
    for name, then in saved.items():
        now = found.get(name, then)  # a version that knew other names asked for no such thing
        if now == then or (name == DATA and allow_data_change):
            continue
        hint = "; --allow-data-change goes on with the new data" if name == DATA else ""
        lines.append(f"{name}: found {now}, wanted {then}, as in the checkpoint{hint}")
    # Other weights look different in another dtype, which is then the reason.
    if any(line.startswith("target.dtype:") for line in lines):
        lines = [line for line in lines if not line.startswith("target.weights:")]
    return lines


def data_fingerprint(samples: Sequence[Sample]) -> str:
    """Return the number of conversations and a hash of their tokens and loss masks, in words."""
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(struct.pack("<qq", sample.index, len(sample.ids)))
        digest.update(array("q", sample.document_starts).tobytes())
        digest.update(array("q", sample.ids).tobytes() + bytes(sample.supervised))
    num_conversations = sum(len(sample.document_starts) for sample in samples)
    return f"{num_conversations} usable conversations ({digest.hexdigest()[:16]})"


def weights_fingerprint(target: Target) -> str:
    """Return a hash of the target's weights, quick enough for every start.

    Each tensor counts with its name, shape, first elements and the sum of its bits as integers.
    """
    digest = hashlib.sha256()
    for name, weight in target.model.named_parameters():
        integers = weight.detach().reshape(-1).view(_INTEGERS[weight.element_size()])
        facts = (name, tuple(weight.shape), integers[:8].tolist(), int(integers.sum()))
        digest.update(repr(facts).encode())
    return digest.hexdigest()[:16]


def tokenizer_fingerprint(target: Target) -> str:
    """Return a hash of the tokenizer and its chat template."""
    tokenizer = target.tokenizer
    parts = (tokenizer.backend_tokenizer.to_str(), str(tokenizer.chat_template))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _at(resolved: Mapping[str, Any], name: str) -> Any:
    section, key = name.split(".")
    return resolved[section][key]
