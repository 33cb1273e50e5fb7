"""The run file: every setting that can change a training's result, validated without torch.

A run file is TOML. Unknown keys are refused, and all problems of a file are reported at once, each
with its dotted key, what was found and what is wanted. `check_inputs` then looks at the files that
a run names. Neither imports torch, so that a launcher can refuse a bad file in milliseconds.

Relative paths in a run file start at the folder of the run file, those of `--set` at the working
folder.
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from train.checkpoint_section import CheckpointConfig
from train.data_section import HUB_PREFIX, DataConfig, absolute_source
from train.layout import LayoutConfig, check_layout, contradictions
from train.overrides import Override, overlaid, parse_overrides
from train.settings import ConfigError, problems_of
from train.target_section import TargetConfig, TokenId, absolute_target, is_local_path
from train.train_section import PositiveInt, TrainSettings

__all__ = [
    "ConfigError",
    "DataConfig",
    "TargetConfig",
    "TrainConfig",
    "TrainSettings",
    "changed",
    "check_inputs",
    "check_layout",
    "is_local_path",
    "load_config",
    "to_builtins",
]

if TYPE_CHECKING:
    from collections.abc import Sequence


class DraftConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The drafter; head counts, width and RoPE follow from the target."""

    mask_token_id: TokenId | Literal["auto"] = "auto"  # noqa: S105  no password
    """Token id that stands for "to be predicted"; an embedding row that real text never uses. auto
    takes one that no conversation holds: a row beyond the tokenizer's, or a special token."""
    num_layers: PositiveInt = 5
    """Decoder layers."""
    block_size: Annotated[int, msgspec.Meta(ge=2, le=128)] = 16
    """Tokens in a block, the known first one included."""
    init: Literal["random", "target"] = "random"
    """Where layer weights start: normal noise, or copies of the target's last layers."""


class EvalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is measured before, during and after the training."""

    num_anchors: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 64
    """Fixed blocks per held-out conversation for the held-out loss."""
    num_prompts: PositiveInt = 32
    """Held-out prompts that are decoded."""
    max_new_tokens: PositiveInt = 256
    """Tokens decoded per prompt."""
    batch: PositiveInt = 32
    """Prompts that are decoded side by side, which does not change what is accepted."""
    timed_prompts: Annotated[int, msgspec.Meta(ge=0)] = 4
    """The first so many prompts are decoded once more before and after the training, one at a time,
    for the speed; 0 measures none."""
    every_steps: Annotated[int, msgspec.Meta(ge=0)] = 500
    """Optimizer steps between evaluations during the training, which find the best checkpoint; 0
    measures before and after only."""
    decode_prompts: Annotated[int, msgspec.Meta(ge=0)] = 8
    """Held-out prompts that are decoded at each of them; 0 decodes none."""
    dtype: Literal["target", "float32"] = "target"
    """Element type of target and drafter when decoding; in bfloat16, verifying a block at once
    rounds differently from decoding one token, and near ties may flip."""


class LogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Progress."""

    every_steps: PositiveInt = 10
    """Optimizer steps that a line of metrics sums up."""
    every_seconds: Annotated[float, msgspec.Meta(gt=0.0)] = 10.0
    """Seconds between progress lines where stderr is no terminal."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard as well, to `tensorboard` in the run folder."""
    wandb: Literal["off", "offline", "online"] = "off"
    """Give the metrics to Weights & Biases as well; offline keeps them in the run folder."""


class TrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run."""

    name: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
    """Names the run folder."""
    target: TargetConfig
    draft: DraftConfig = DraftConfig()
    data: DataConfig
    train: TrainSettings = TrainSettings()
    layout: LayoutConfig = LayoutConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    eval: EvalConfig = EvalConfig()
    log: LogConfig = LogConfig()

    @property
    def gamma(self) -> float:
        """Decay of the loss weights, in slots: 7, 5, 4 for blocks of 16, 10, 8, else 0.45 blocks.

        Source: DFlash, arXiv 2602.06036 v2, for the three values.
        """
        published = {16: 7.0, 10: 5.0, 8: 4.0}
        block_size = self.draft.block_size
        return self.train.gamma or published.get(block_size, 0.45 * block_size)

    @property
    def distills(self) -> bool:
        """Whether the loss needs the target's own distribution, and so its final states."""
        return self.train.loss in ("distill", "dpace-distill")

    @property
    def min_supervised(self) -> int:
        """Fewest assistant tokens of a usable conversation."""
        return self.data.min_supervised or 2 * self.draft.block_size


def load_config(path: Path, *, settings: Sequence[str] = ()) -> TrainConfig:
    """Read and validate a run file; its paths come back absolute.

    Args:
        path: The run file.
        settings: `KEY=VALUE` each, laid over it; their paths start at the working folder.

    Raises:
        ConfigError: The file is missing, is no TOML, or a value is not allowed; one line for each
            problem, which names the file or `--set`.
    """
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError([f"{path}: cannot read the run file: {reason}"]) from error
    except UnicodeDecodeError as error:
        problem = f"{path}: not valid TOML: byte {error.start} is no UTF-8"
        raise ConfigError([problem]) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError([f"{path}: not valid TOML: {error}"]) from error
    return _validated(raw, path=path, settings=settings)


def changed(config: TrainConfig, *, path: Path, settings: Sequence[str]) -> TrainConfig:
    """Return a config that was validated before with settings laid over it.

    Args:
        config: As a run folder keeps it.
        path: Where it is from, for messages.
        settings: As in `load_config`.

    Raises:
        ConfigError: A setting is not allowed; one line for each.
    """
    return _validated(_without_none(to_builtins(config)), path=path, settings=settings)


def _validated(raw: dict[str, Any], *, path: Path, settings: Sequence[str]) -> TrainConfig:
    overrides = parse_overrides(settings, TrainConfig)
    try:
        raw = overlaid(raw, [_from_working_folder(one) for one in overrides])
        problems = problems_of(raw, TrainConfig)
    except ConfigError as error:
        problems = list(error.problems)
    if not problems:
        config = msgspec.convert(raw, TrainConfig)
        problems = cross_field_problems(config)
        if not problems:
            return with_absolute_paths(config, path.resolve().parent)
    raise ConfigError(
        [
            f"--set {problem}"
            if any(one.touches(problem.partition(":")[0]) for one in overrides)
            else f"{path}: {problem}"
            for problem in problems
        ]
    )


def _from_working_folder(override: Override) -> Override:
    """Return a setting whose path, if it is one, does not start at the folder of the run file."""
    value = override.value
    if isinstance(value, str):
        if override.key in {"data.train", "data.held_out"}:
            return Override(override.key, absolute_source(value, Path.cwd()))
        if override.key == "target.path":
            return Override(override.key, absolute_target(value, Path.cwd()))
    return override


def _without_none(value: Any) -> Any:
    """Return JSON-able values as TOML would have them: what is unset is absent."""
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return value


def cross_field_problems(config: TrainConfig) -> list[str]:
    """Return one line for each pair of settings that contradict each other."""
    problems = contradictions(config.layout)
    if (config.train.device, config.train.attention) == ("cpu", "flex"):
        problems.append(
            "train.attention: found flex, which cannot train on a CPU; wanted dense or auto"
            " with train.device cpu"
        )
    buckets = config.data.buckets
    if not buckets or list(buckets) != sorted(set(buckets)):
        problems.append(f"data.buckets: found {list(buckets)}, wanted rising lengths")
    elif buckets[-1] < config.data.max_length:
        problems.append(
            f"data.buckets: the largest is {buckets[-1]}, wanted at least data.max_length"
            f" ({config.data.max_length})"
        )
    layer_ids = config.target.layer_ids
    if layer_ids is not None and (not layer_ids or list(layer_ids) != sorted(set(layer_ids))):
        problems.append(f"target.layer_ids: found {list(layer_ids)}, wanted rising layer numbers")
    problems += [
        f"{key}: found {value}, wanted a finite number"
        for key, value in (
            ("train.peak_lr", config.train.peak_lr),
            ("train.grad_clip", config.train.grad_clip),
            ("train.gamma", config.gamma),
            ("train.weight_decay", config.train.weight_decay),
            ("train.distill_temperature", config.train.distill_temperature),
        )
        if not math.isfinite(value)
    ]
    warmup, decay = config.train.warmup_fraction, config.train.decay_fraction
    if config.train.schedule == "wsd" and warmup + decay > 1.0:
        problems.append(
            f"train.decay_fraction: found {decay:g} beside train.warmup_fraction {warmup:g},"
            " wanted at most 1 together"
        )
    return problems


def with_absolute_paths(config: TrainConfig, folder: Path) -> TrainConfig:
    """Return the config with data files, and a target that is a local path, taken from `folder`."""
    data = msgspec.structs.replace(
        config.data,
        train=absolute_source(config.data.train, folder),
        held_out=absolute_source(config.data.held_out, folder),
    )
    target = msgspec.structs.replace(
        config.target, path=absolute_target(config.target.path, folder)
    )
    return msgspec.structs.replace(config, data=data, target=target)


def check_inputs(config: TrainConfig) -> None:
    """Check that the files a loaded config names exist.

    A `package:` target is not looked up: it lies in the environment that will run the training,
    which is not always this one.

    Raises:
        ConfigError: One line for each missing file, with its key and path.
    """
    problems = [
        f"data.{key}: no file at {path}"
        for key, path in (("train", config.data.train), ("held_out", config.data.held_out))
        if not path.startswith(HUB_PREFIX) and not Path(path).is_file()
    ]
    target = config.target.path
    if is_local_path(target) and not Path(target).expanduser().exists():
        problems.append(f"target.path: nothing at {target}")
    if problems:
        raise ConfigError(problems)


def to_builtins(config: TrainConfig) -> dict[str, Any]:
    """Return the config as JSON-able values, every default written out."""
    builtins: dict[str, Any] = msgspec.to_builtins(config)
    return builtins
