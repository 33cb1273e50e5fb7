from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.train.tiny_run import write_run
from train.config import LogConfig, load_config
from train.run_folder import RunFolder
from train.settings import ConfigError
from train.sinks import check_sinks, open_sinks, scalars

if TYPE_CHECKING:
    from pathlib import Path

RECORD = {"kind": "step", "step": 3, "loss": 1.5, "accuracy": [0.5, 0.25], "epoch": 1}


def test_scalars_of_a_record() -> None:
    assert scalars(RECORD) == {"loss": 1.5, "accuracy/1": 0.5, "accuracy/2": 0.25, "epoch": 1.0}


@pytest.mark.parametrize(
    ("log", "package"),
    [(LogConfig(tensorboard=True), "tensorboard"), (LogConfig(wandb="offline"), "wandb")],
)
def test_package_that_is_asked_for_and_missing_is_named(log: LogConfig, package: str) -> None:
    if importlib.util.find_spec(package) is not None:
        check_sinks(log)
        return
    with pytest.raises(ConfigError, match=f"log.{package}: needs the package {package}"):
        check_sinks(log)


def test_nothing_is_needed_where_nothing_is_asked_for() -> None:
    check_sinks(LogConfig())


def test_tensorboard_holds_the_scalars(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = load_config(write_run(tmp_path))
    config = msgspec.structs.replace(config, log=LogConfig(tensorboard=True))
    folder = RunFolder(tmp_path)
    with open_sinks(config, folder, first_step=0) as sink:
        sink.write(RECORD)
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss")] == [(3, 1.5)]
    assert "accuracy/2" in events.Tags()["scalars"]
