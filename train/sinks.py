"""Where the metrics of a run go: its JSONL file always, TensorBoard and Weights & Biases if asked.

Imports no torch, so that a package that is asked for and missing is told before anything is loaded.
"""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from train.config import to_builtins
from train.metrics import MetricsWriter
from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from train.config import LogConfig, TrainConfig
    from train.run_folder import RunFolder

WANDB_PROJECT = "dflash-drafter"


class Sink(Protocol):
    """Takes the records of a run."""

    def write(self, record: Mapping[str, Any]) -> None:
        """Take one record; a `step` is one of its keys."""
        ...


class Sinks:
    """Several of them as one.

    Args:
        sinks: Each is given every record.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks

    def write(self, record: Mapping[str, Any]) -> None:
        """Give the record to all."""
        for sink in self._sinks:
            sink.write(record)


class _TensorBoard:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, record: Mapping[str, Any]) -> None:
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, record["step"])
        self._writer.flush()


class _WeightsAndBiases:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, record: Mapping[str, Any]) -> None:
        self._run.log(scalars(record), step=record["step"])


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a record by name; a list gives one for each slot, from 1."""
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, list | tuple):
            found |= {f"{name}/{slot}": float(one) for slot, one in enumerate(value, start=1)}
        elif isinstance(value, int | float) and name != "step":
            found[name] = float(value)
    return found


def check_sinks(log: LogConfig) -> None:
    """Check that what a run file asks for is installed.

    Raises:
        ConfigError: A package is missing.
    """
    wanted = [("tensorboard", "tensorboard", log.tensorboard)]
    wanted.append(("wandb", "wandb", log.wandb != "off"))
    problems = [
        f"log.{key}: needs the package {package}, which is not installed in this environment"
        for key, package, is_on in wanted
        if is_on and importlib.util.find_spec(package) is None
    ]
    if problems:
        raise ConfigError(problems)


@contextmanager
def open_sinks(config: TrainConfig, folder: RunFolder, *, first_step: int) -> Iterator[Sink]:
    """Open what the run file asks for, and close it at the end.

    Args:
        config: The run.
        folder: Holds the files of all.
        first_step: Steps taken before; what TensorBoard holds of later ones is shown no more.
    """
    log = config.log
    with ExitStack() as stack:
        sinks: list[Sink] = [stack.enter_context(MetricsWriter(folder.metrics))]
        if log.tensorboard:
            module = import_module("torch.utils.tensorboard")
            writer = module.SummaryWriter(
                str(folder.path / "tensorboard"), purge_step=first_step + 1
            )
            stack.callback(writer.close)
            sinks.append(_TensorBoard(writer))
        if log.wandb != "off":
            run = import_module("wandb").init(
                project=WANDB_PROJECT,
                name=config.name,
                dir=str(folder.path),
                mode=log.wandb,
                config=to_builtins(config),
            )
            stack.callback(run.finish)
            sinks.append(_WeightsAndBiases(run))
        yield Sinks(sinks)
