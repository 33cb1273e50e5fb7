"""Where a run starts: at its newest whole checkpoint, or at the beginning."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from train.checkpoint_files import RANDOM_NAME, STATE_NAME, TRAINING_NAME
from train.checkpoint_store import damage
from train.contract import DATA, differences
from train.plan import Origin
from train.rng import set_random_state
from train.settings import ConfigError
from train.snapshot import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from train.best import Best
    from train.checkpoint_store import CheckpointStore
    from train.course import Course
    from train.ledger import Ledger


@dataclass(frozen=True)
class Start:
    """Where a run starts.

    Attributes:
        checkpoint: What it goes on from; None at the beginning.
        state: The checkpoint's `state.json`.
        origin: Where the order of its data begins.
        contract: What is there now, for the checkpoints to come.
    """

    checkpoint: Path | None = None
    state: dict[str, Any] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)
    contract: Mapping[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Optimizer steps taken already."""
        return int(self.state.get("step", 0))


def find_start(
    store: CheckpointStore,
    contract: Mapping[str, Any],
    *,
    allow_data_change: bool,
    say: Callable[[str], None],
) -> Start:
    """Find the newest whole checkpoint, and hold what is there now against it.

    Args:
        store: The run's checkpoints; broken ones are renamed.
        contract: From `train.contract.contract_of`.
        allow_data_change: Go on with other data, from the start of the epoch that was begun.
        say: Told of broken checkpoints, and of changed data.

    Raises:
        ConfigError: Something differs that must not; one line for each.
    """
    checkpoint = newest_whole(store, say=say)
    if checkpoint is None:
        return Start(contract=contract)
    state = json.loads((checkpoint / STATE_NAME).read_text("utf-8"))
    if state["schema_version"] != SCHEMA_VERSION:
        schema = f"found {state['schema_version']}, wanted {SCHEMA_VERSION}"
        raise ConfigError([f"{checkpoint / STATE_NAME}: schema_version: {schema}"])
    saved = state["contract"]
    if found := differences(contract, saved, allow_data_change=allow_data_change):
        raise ConfigError([f"--resume {store.folder.parent}: {line}" for line in found])
    origin = Origin(**state["origin"])
    if contract[DATA] != saved[DATA]:
        origin = Origin(step=state["step"], epoch=state["epoch"])
        say(
            f"{DATA}: now {contract[DATA]}, until step {state['step']} {saved[DATA]};"
            f" epoch {state['epoch']} begins anew"
        )
    return Start(checkpoint, state, origin, contract)


def newest_whole(store: CheckpointStore, *, say: Callable[[str], None]) -> Path | None:
    """Return the newest checkpoint whose files are as they were written.

    Broken ones are renamed, and kept for whoever wants to look at them.
    """
    store.tidy()
    steps = store.steps()
    for step in reversed(steps):
        checkpoint = store.path(step)
        problem = damage(checkpoint)
        if problem is None:
            return checkpoint
        aside = store.set_aside(step)
        say(f"warning: checkpoint {checkpoint.name} is broken: {problem}; it is now {aside.name}")
    if steps:
        say("warning: no checkpoint is whole: the run begins anew")
    return None


def restore(course: Course, start: Start, *, ledger: Ledger, best: Best) -> None:
    """Put models, optimizer, totals and random generators back to where the run was.

    Nothing is unpickled but tensors and plain values.
    """
    if start.checkpoint is None:
        return
    training = _tensors(start.checkpoint / TRAINING_NAME)
    device = course.pair.target.device
    course.pair.drafter.load_state_dict(training["drafter"])
    settings = [_settings(group) for group in course.optimizer.param_groups]
    for name, part in course.stateful().items():
        if name in training:  # a moving average may have been asked for only now
            part.load_state_dict(training[name])
    # The state brings the settings that it was saved with; those of the run file count.
    for group, own in zip(course.optimizer.param_groups, settings, strict=True):
        group.update(own)
    ledger.load_state_dict(training["ledger"], device=device)
    best.load_state_dict(start.state["best"])
    for batch in course.order.batches_before(start.step):
        course.store.remember(batch)
    set_random_state(_tensors(start.checkpoint / RANDOM_NAME), device)


def _tensors(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return read


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def changes(now: Mapping[str, Any], then: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return one line for each setting that differs, with both values."""
    lines = []
    for key in dict.fromkeys([*then, *now]):
        new, old = now.get(key), then.get(key)
        if isinstance(new, dict) and isinstance(old, dict):
            lines += changes(new, old, f"{prefix}{key}.")
        elif new != old:
            lines.append(f"{prefix}{key}: {old} -> {new}")
    return lines
