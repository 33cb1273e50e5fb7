"""What is measured before the training, once per run: a resumed run reads it back."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from train.config import to_builtins
from train.machine import device_name
from train.measure import Measured  # noqa: TC001  read when a file is decoded
from train.run_folder import write_json

if TYPE_CHECKING:
    from pathlib import Path

    from train.config import TrainConfig
    from train.held_out import Evaluation
    from train.inputs import Inputs
    from train.progress import Progress


@dataclass(frozen=True)
class Baseline:
    """What the target alone and an untrained drafter give.

    Attributes:
        key: Hash of what it depends on.
        held_out: The untrained drafter's loss on the held-out conversations.
        plain: Answers of the target alone.
        untrained: The same prompts with the untrained drafter.
    """

    key: str
    held_out: dict[str, Any]
    plain: Measured
    untrained: Measured


def measure_once(
    path: Path,
    *,
    config: TrainConfig,
    inputs: Inputs,
    evaluation: Evaluation,
    progress: Progress,
) -> Baseline:
    """Return the baseline of a run; measured if the file is missing or about something else."""
    key = _key(config, inputs)
    try:
        known = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except (OSError, msgspec.MsgspecError):
        known = None
    if known is not None and known.key == key:
        return known
    drafter = inputs.pair.drafter
    measured = Baseline(
        key,
        held_out=evaluation.held_out_loss(drafter, progress=progress),
        plain=evaluation.decode(None, progress=progress, name="target alone"),
        untrained=evaluation.decode(drafter, progress=progress, name="untrained drafter"),
    )
    write_json(path, msgspec.to_builtins(measured))
    return measured


def _key(config: TrainConfig, inputs: Inputs) -> str:
    resolved = to_builtins(config)
    facts = {
        "settings": {name: resolved[name] for name in ("target", "draft", "eval")},
        "seed": config.train.seed,
        "held_out": [sample.ids for sample in inputs.held_out.samples],
        "prompts": inputs.prompts,
        # Speeds are compared with those after the training.
        "device": device_name(inputs.pair.target.device),
    }
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
