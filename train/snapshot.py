"""A copy of everything a training needs to go on, which later steps do not change."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from train.checkpoint import serving_config, serving_weights
from train.config import to_builtins
from train.machine import package_versions
from train.rng import random_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from train.best import Best
    from train.course import Course
    from train.ledger import Ledger

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint's content, on the CPU.

    Attributes:
        step: Optimizer steps taken.
        weights: As engines serve them, in bfloat16.
        serving: `config.json` of the serving format.
        training: Float32 weights, optimizer and totals: `optimizer.pt`.
        random: State of the random generators.
        state: What a person or a resume reads first: `state.json`.
    """

    step: int
    weights: dict[str, Tensor]
    serving: dict[str, Any]
    training: dict[str, Any]
    random: dict[str, Any]
    state: dict[str, Any]


@dataclass(frozen=True)
class Camera:
    """Copies a training as it is after a step.

    Attributes:
        course: The training.
        ledger: Its totals.
        best: Its best score so far.
        contract: What a resume must find unchanged; see `train.contract`.
        receipt_id: Id of the environment's receipt; None for one that envdoctor did not build.
    """

    course: Course
    ledger: Ledger
    best: Best
    contract: Mapping[str, Any]
    receipt_id: str | None

    def take(self, step: int) -> Snapshot:
        """Return a copy that is complete when this returns."""
        course, target = self.course, self.course.pair.target
        training = {
            "drafter": course.pair.drafter.state_dict(),
            **{name: part.state_dict() for name, part in course.stateful().items()},
            "ledger": self.ledger.state_dict(),
        }
        return Snapshot(
            step=step,
            weights=copied(serving_weights(course.trained_drafter.state_dict())),
            serving=serving_config(
                course.pair.drafter.config,
                bos_token_id=target.tokenizer.bos_token_id,
                eos_token_id=target.eos_id,
            ),
            training=copied(training),
            random=random_state(target.device),
            state=self._state(step),
        )

    def _state(self, step: int) -> dict[str, Any]:
        plan = self.course.plan
        epoch, step_in_epoch = plan.place(step)
        return {
            "schema_version": SCHEMA_VERSION,
            "step": step,
            "num_steps": plan.num_steps,
            "epoch": epoch,
            "step_in_epoch": step_in_epoch,
            "origin": asdict(plan.origin),
            "num_tokens": self.ledger.outcome().num_tokens,
            "best": self.best.state_dict(),
            "saved": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "receipt": self.receipt_id,
            "versions": package_versions(),
            "contract": dict(self.contract),
            "config": to_builtins(self.course.config),
        }


def copied(tree: Any) -> Any:
    """Return a tree of dicts, lists and tuples with its tensors copied to the CPU.

    From a GPU they are copied all at once, into memory that the GPU can write to by itself.
    """
    copy = _copied(tree)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return copy


def _copied(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        source = tree.detach()
        copy = torch.empty_like(source, device="cpu", pin_memory=source.is_cuda)
        return copy.copy_(source, non_blocking=True)
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_copied(value) for value in tree)
    return tree
