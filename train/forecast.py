"""What a run will take, before it is started: `train --plan`.

Reads the target's configuration and tokenizer and all data, and neither its weights nor a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from train.checkpoint import shape_of
from train.config import to_builtins
from train.conversations import read_conversations
from train.data import Encoding, build_dataset
from train.drafter_config import drafter_config_of
from train.epoch_work import epoch_flops, padded_rows
from train.flops import PEAK_TFLOPS
from train.packing import packed
from train.plan import plan_of
from train.sizes import (
    FLOAT32_BYTES,
    dense_attention_bytes,
    feature_bytes,
    num_parameters,
)
from train.target_loading import dtype_for, layer_ids_of
from train.target_shape import read_target_shape

if TYPE_CHECKING:
    from train.config import TrainConfig
    from train.data import Dataset
    from train.drafter_config import DrafterConfig
    from train.sizes import DraftShape
    from train.target_shape import TargetShape

SHOWN_GPUS = ("A100", "H200", "B200")
"""GPUs for which the least time of a run is said."""
LOGIT_COPIES = 3
"""Float32 arrays of a chunk's logits that live at once: logits, their softmax, their gradient."""


@dataclass(frozen=True)
class Forecast:
    """What a run will take.

    Attributes:
        config: The run, every default written out.
        training: What it trains on.
        drafter: The drafter's shape.
        target: The target's shape.
        rows: Padded length of each row of one epoch, padding rows included.
    """

    config: TrainConfig
    training: Dataset
    drafter: DrafterConfig
    target: TargetShape
    rows: list[int]

    @property
    def shape(self) -> DraftShape:
        """The numbers that fix the drafter's tensors."""
        return shape_of(self.drafter)

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return plan_of(self.training.samples, self.config).num_steps

    @property
    def num_context_tokens(self) -> int:
        """Context tokens of one epoch, without padding."""
        return sum(len(sample.ids) for sample in self.training.samples)

    @property
    def flops_per_epoch(self) -> float:
        """Operations of one epoch's forward and backward, the target left out."""
        vocab_size = self.drafter.vocab_size
        return epoch_flops(self.rows, self.config, shape=self.shape, vocab_size=vocab_size)

    @property
    def target_flops_per_epoch(self) -> float:
        """Operations of the target's matrices over one epoch's rows, padding included."""
        return 2.0 * self.target.num_active * sum(self.rows)

    @property
    def epochs(self) -> float:
        """Passes over the data, fewer than asked for where `train.max_steps` ends the run."""
        return self.num_steps / plan_of(self.training.samples, self.config).steps_per_epoch

    @property
    def target_passes(self) -> float:
        """Passes of the target over the data: one, and the later ones for what is not kept."""
        kept = min(1.0, self.config.train.cache_features_bytes / self.state_bytes)
        return min(self.epochs, 1.0) + max(self.epochs - 1.0, 0.0) * (1.0 - kept)

    @property
    def flops(self) -> dict[str, float]:
        """Operations of the whole run: the drafter's, and at least how many of the target."""
        return {
            "drafter": self.epochs * self.flops_per_epoch,
            "target": self.target_passes * self.target_flops_per_epoch,
        }

    @property
    def state_bytes(self) -> int:
        """Bytes of all states of the target that the training reads."""
        return feature_bytes(
            self.num_context_tokens,
            num_tapped=self.shape.num_tapped + self.config.distills,
            hidden_size=self.shape.hidden_size,
            itemsize=self._itemsize,
        )

    def memory_bytes(self) -> dict[str, int]:
        """Return the bytes that the larger parts take, by what they are."""
        settings, itemsize = self.config.train, self._itemsize
        parameters = num_parameters(self.shape)
        moments = 1 if settings.optimizer == "muon" else 2
        copies = FLOAT32_BYTES * (2 + moments + bool(settings.ema_decay))
        if itemsize < FLOAT32_BYTES:
            copies += itemsize  # what autocast makes of each weight lives until the backward pass
        chunk = settings.objective_chunk_blocks * self.config.draft.block_size
        return {
            "target weights": self.target.num_parameters * itemsize,
            "drafter weights, gradients and optimizer": copies * parameters,
            "kept states of the target": min(self.state_bytes, settings.cache_features_bytes),
            "logits of a chunk": LOGIT_COPIES * FLOAT32_BYTES * chunk * self.drafter.vocab_size,
        }

    @property
    def dense_bytes(self) -> int:
        """Bytes of one layer's attention scores for the longest rows without a fused kernel."""
        settings = self.config.train
        num_queries = settings.num_anchors * self.config.draft.block_size
        return dense_attention_bytes(
            self.shape.num_heads,
            num_queries=num_queries,
            num_keys=max(self.rows) + num_queries,
            batch=settings.micro_batch,
        )

    def summary(self) -> dict[str, Any]:
        """Return all figures, ready for JSON."""
        memory = self.memory_bytes()
        return {
            "config": to_builtins(self.config),
            "target_layer_ids": list(self.drafter.target_layer_ids),
            "gamma": self.config.gamma,
            "num_samples": self.training.num_conversations,
            "dropped": dict(self.training.dropped),
            "num_steps": self.num_steps,
            "context_tokens_per_epoch": self.num_context_tokens,
            "num_draft_parameters": num_parameters(self.shape),
            "num_target_parameters": self.target.num_parameters,
            "num_target_parameters_per_token": self.target.num_active,
            "epochs": self.epochs,
            "flops": self.flops,
            "memory_bytes": {**memory, "together, activations left out": sum(memory.values())},
            "flops_per_epoch": self.flops_per_epoch,
            "target_flops_per_epoch": self.target_flops_per_epoch,
            "dense_attention_bytes_per_layer": self.dense_bytes,
            "seconds_at_peak": self.seconds_at_peak,
        }

    @property
    def seconds_at_peak(self) -> dict[str, float]:
        """Seconds that the operations take where a GPU does nothing else, by GPU; none on a CPU."""
        if self._device == "cpu":
            return {}
        flops = sum(self.flops.values())
        return {name: flops / (PEAK_TFLOPS[name] * 1e12) for name in SHOWN_GPUS}

    @property
    def _device(self) -> str:
        return "cpu" if self.config.train.device == "cpu" else "cuda"

    @property
    def _itemsize(self) -> int:
        return dtype_for(self.config.target.dtype, torch.device(self._device)).itemsize


def forecast(config: TrainConfig) -> Forecast:
    """Read target and data, and count.

    Raises:
        ConfigError: The target or the data cannot be used.
    """
    target = read_target_shape(config.target)
    chosen = config.draft.mask_token_id
    num_layers = target.config.num_hidden_layers
    num_taps = config.draft.num_layers
    layer_ids = layer_ids_of(config.target, num_layers=num_layers, num_taps=num_taps)
    drafter = drafter_config_of(
        config,
        target.config,
        # Which row of the embedding it is changes no size.
        mask_token_id=0 if chosen == "auto" else chosen,
        target_layer_ids=layer_ids,
    )
    dataset = build_dataset(
        read_conversations(config.data.train, max_rows=config.data.max_rows),
        Encoding.of(config, target),
    )
    dataset.require(1, key="data.train")
    training = packed(dataset, config.data)
    rows = padded_rows(training.samples, config)
    return Forecast(config, training, drafter, target, rows)
