"""The `[train]` section of a run file: everything about the optimisation; imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
Bytes = Annotated[int, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Beta = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]


class TrainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Optimisation."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes a CUDA device when torch sees one."""
    attention: Literal["auto", "flex", "dense"] = "auto"
    """How the drafter attends in training: flex is compiled and never holds the scores, and needs a
    CUDA device; dense holds them all; auto is flex on CUDA and dense elsewhere."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)] = 42
    """Seeds the initial weights, the epoch order and the anchors."""
    epochs: PositiveInt = 6
    """Passes over the training conversations."""
    max_steps: PositiveInt | None = None
    """Optimizer steps after which to stop although epochs are left; unset runs all epochs."""
    loss: Literal["ce", "dpace", "distill", "dpace-distill"] = "ce"
    """What a slot is compared with: the token (ce, dpace) or the target's whole distribution
    (distill); with dpace, slots are weighed by how likely they are reached, else by `gamma`."""
    gamma: Annotated[float, msgspec.Meta(gt=0.0)] | None = None
    """Slots after which the loss weight has fallen to 1/e; unset follows the block size. Not used
    by D-PACE."""
    dpace_alpha: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.5
    """Smoothing of the probabilities that D-PACE multiplies; at 1 they do not count."""
    distill_temperature: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0
    """Divides the logits of target and drafter in a distillation."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """Optimizer of the matrices, scaled so that both want about the same learning rate; norms
    always have AdamW."""
    peak_lr: Annotated[float, msgspec.Meta(gt=0.0)] = 6e-4
    """Learning rate after the warm-up."""
    schedule: Literal["cosine", "wsd"] = "cosine"
    """Learning rate after the warm-up: half a cosine, or constant until the last `decay_fraction`
    of the steps, which are half a cosine."""
    final_lr_fraction: Fraction = 0.0
    """Share of `peak_lr` where the cosine ends."""
    warmup_fraction: Fraction = 0.04
    """Share of the optimizer steps in which the learning rate rises from 0."""
    decay_fraction: Fraction = 0.2
    """Share of the optimizer steps in which the learning rate of `wsd` falls."""
    weight_decay: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """Decoupled weight decay of the matrices."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    """AdamW decay rates of the two moments."""
    ema_decay: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.0
    """Share of the moving average of the weights that a step keeps; the average is what is measured
    and saved then. 0 keeps none."""
    grad_clip: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0
    """Global gradient norm above which gradients are scaled down."""
    num_anchors: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 512
    """Blocks per row and pass; a row is a conversation, or several where `data.packing` is set."""
    micro_batch: PositiveInt = 1
    """Conversations per forward and backward."""
    accumulation: PositiveInt = 1
    """Micro-batches per optimizer step."""
    objective_chunk_blocks: PositiveInt = 128
    """Blocks of a row whose logits exist at once."""
    checkpoint_layers: bool = False
    """Recompute the drafter's layers in the backward pass instead of keeping their activations."""
    cache_features_bytes: Bytes = 0
    """Memory of the training device for the target's states, so that an epoch after the first needs
    no target; 0 keeps none. Those of held-out conversations are kept beside it, at most as much."""
