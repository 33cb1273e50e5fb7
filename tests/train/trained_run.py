"""A run folder with a checkpoint of a drafter that nobody trained; made in a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tests.train.saved import save_checkpoint
from tests.train.tiny_run import EOS, MASK, make_model, write_run
from train.config import load_config
from train.drafter import Drafter
from train.drafter_config import drafter_config_for
from train.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

LAYER_IDS = (1, 4)


def make_drafter(*, block_size: int = 4, seed: int = 0) -> Drafter:
    """A random drafter of the tiny model."""
    torch.manual_seed(seed)
    config = drafter_config_for(
        make_model().config,
        num_layers=2,
        block_size=block_size,
        mask_token_id=MASK,
        target_layer_ids=LAYER_IDS,
    )
    return Drafter(config).eval()


def write_trained_run(folder: Path, *, seed: int = 0) -> Path:
    """Write a run folder with a checkpoint beside the tiny run's files; return it."""
    run_file = folder / "run.toml"
    if not run_file.exists():
        write_run(folder)
    run = RunFolder.create(load_config(run_file), folder / f"out-{seed}")
    save_checkpoint(make_drafter(seed=seed), run.checkpoint, eos_token_id=EOS)
    return run.path
