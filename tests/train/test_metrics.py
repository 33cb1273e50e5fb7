from __future__ import annotations

import json
from typing import TYPE_CHECKING

from train.metrics import MetricsWriter, json_ready

if TYPE_CHECKING:
    from pathlib import Path


def test_metrics_lines_are_flushed_and_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path) as metrics:
        metrics.write({"loss": float("nan"), "accuracy": [0.5, float("inf")]})
        assert json.loads(path.read_text()) == {"loss": None, "accuracy": [0.5, None]}
    assert json_ready({"a": (1, 2.5)}) == {"a": [1, 2.5]}
