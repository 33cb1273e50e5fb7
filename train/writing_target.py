"""The target that the options of a command name, which writes prompts or answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from train.config import TargetConfig
from train.settings import ConfigError
from train.target_section import is_local_path

if TYPE_CHECKING:
    import argparse

    from train.target import Target


def check_target_path(path: str) -> None:
    """Check a target that is written as a path, before torch is loaded.

    Raises:
        ConfigError: Nothing is there.
    """
    if is_local_path(path) and not Path(path).expanduser().exists():
        raise ConfigError([f"--target: nothing at {path}"])


def load_writer(options: argparse.Namespace) -> Target:
    """Load the target that the options name.

    Raises:
        ConfigError: It cannot be loaded, or the device does not exist.
    """
    # Here, because torch takes seconds to import.
    from train.machine import choose_device  # noqa: PLC0415
    from train.target_loading import load_target  # noqa: PLC0415

    config = TargetConfig(
        path=options.target, eos_token_id=options.eos_token_id, dtype=options.dtype
    )
    return load_target(config, device=choose_device(options.device))
