from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.train.tiny_run import RUN_FILE, conversation, write_jsonl
from train.config import load_config
from train.inputs import load
from train.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="run_file")
def _run_file(tmp_path: Path) -> Path:
    """A run without a model: whatever is said of its data is said before one is loaded."""
    path = tmp_path / "run.toml"
    path.write_text(RUN_FILE.format(mask=3, epochs=1), "utf-8")
    for name in ("train", "held-out"):
        write_jsonl(tmp_path / f"{name}.jsonl", [conversation("q", "a")] * 3)
    (tmp_path / "model").mkdir()
    return path


def test_bad_rows_of_both_files_are_found_before_the_model_loads(run_file: Path) -> None:
    for name in ("train", "held-out"):
        with (run_file.parent / f"{name}.jsonl").open("a") as file:
            file.write('{"text": "?"}\n')
    with pytest.raises(ConfigError) as caught:
        load(load_config(run_file))
    wanted = 'found keys ["text"], wanted a list of turns under'
    places = [problem.split(f": {wanted}")[0] for problem in caught.value.problems]
    assert places == [f"{run_file.parent / name}.jsonl:4" for name in ("train", "held-out")]


@pytest.mark.skipif(torch.cuda.is_available(), reason="it has the device")
def test_a_missing_gpu_is_found_before_anything_is_read(run_file: Path) -> None:
    (run_file.parent / "train.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"train\.device: found 'cuda', but torch sees no CUDA"):
        load(load_config(run_file, settings=["train.device=cuda"]))
