"""What a run folder or a checkpoint on a command line stands for; imports no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from train.checkpoint_files import STATE_NAME, WEIGHTS_NAME
from train.config import TargetConfig, TrainConfig
from train.run_folder import RunFolder
from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Reference:
    """A checkpoint, and the run that it comes from.

    Attributes:
        given: As the user wrote it.
        checkpoint: Folder with `config.json` and `model.safetensors`.
        run: The run's settings; None where nothing beside the checkpoint tells them.
    """

    given: Path
    checkpoint: Path
    run: TrainConfig | None

    def target(self, path: str | None, *, eos_token_id: int | None = None) -> TargetConfig:
        """Return the target to decode with: the run's, with what the command line changes.

        Args:
            path: As `target.path` in a run file; None takes the run's.
            eos_token_id: Token that ends a turn; None takes the run's, or the tokenizer's.

        Raises:
            ConfigError: Neither says which target it is.
        """
        if path is not None:
            config = TargetConfig(path=path)
        elif self.run is not None:
            config = self.run.target
        else:
            raise ConfigError(
                [f"{self.given}: no run tells which target it was trained for; wanted --target"]
            )
        if eos_token_id is not None:
            config = msgspec.structs.replace(config, eos_token_id=eos_token_id)
        return config


def resolve(given: Path, *, best: bool = False) -> Reference:
    """Find the checkpoint that a path means.

    Args:
        given: A run folder, which means its newest checkpoint, or a checkpoint's own folder.
        best: Take the run's best checkpoint instead of the newest.

    Raises:
        ConfigError: There is none.
    """
    checkpoint = given
    if not (given / WEIGHTS_NAME).is_file():
        checkpoint = _best_of(given) if best else RunFolder(given).checkpoint
    elif best:
        raise ConfigError([f"{given}: is a checkpoint itself; --best wants the folder of a run"])
    if not (checkpoint / WEIGHTS_NAME).is_file():
        looked = f"{given} and {checkpoint}"
        raise ConfigError([f"{given}: no checkpoint; looked for {WEIGHTS_NAME} in {looked}"])
    checkpoint = checkpoint.resolve()
    return Reference(given, checkpoint, run=next(_runs(checkpoint), None))


def _best_of(run: Path) -> Path:
    pointer = RunFolder(run).checkpoints / "best"
    try:
        return pointer.parent / pointer.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{run}: no best checkpoint is known: no {pointer}"]) from error


def _runs(checkpoint: Path) -> Iterator[TrainConfig]:
    """Yield the settings that lie in a checkpoint, then those of the run around it."""
    inside = _read(checkpoint / STATE_NAME).get("config")
    around = [_read(RunFolder(folder).config) for folder in checkpoint.parents[:2]]
    for raw in (inside, *around):
        if isinstance(raw, dict) and "target" in raw:
            # Fields that a later version added or dropped do not matter to who only decodes.
            yield _settings(raw)


def _settings(raw: dict[str, Any]) -> TrainConfig:
    known = {field.name: field.type for field in msgspec.structs.fields(TrainConfig)}
    kept = {key: _known(raw[key], kind) for key, kind in known.items() if key in raw}
    try:
        return msgspec.convert(kept, TrainConfig)
    except msgspec.ValidationError as error:
        raise ConfigError([f"settings of the run cannot be read: {error}"]) from error


def _known(value: Any, kind: Any) -> Any:
    if not isinstance(value, dict) or not hasattr(kind, "__struct_fields__"):
        return value
    return {key: value[key] for key in kind.__struct_fields__ if key in value}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def shared_target(
    references: Sequence[Reference], path: str | None, *, eos_token_id: int | None
) -> TargetConfig:
    """Return the one target of several checkpoints.

    Raises:
        ConfigError: They have several, or none is known.
    """
    targets = [one.target(path, eos_token_id=eos_token_id) for one in references]
    for reference, target in zip(references, targets, strict=True):
        if target.path != targets[0].path:
            first = f"that of {references[0].given} is {targets[0].path}"
            raise ConfigError(
                [f"{reference.given}: its target is {target.path}, and {first}; wanted the same"]
            )
    return targets[0]
