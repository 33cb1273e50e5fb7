from __future__ import annotations

import pytest

from train.sizes import (
    DraftShape,
    dense_attention_bytes,
    feature_bytes,
    num_parameters,
    readable,
    tensor_shapes,
)

QWEN3_8B = DraftShape(
    hidden_size=4096,
    intermediate_size=12288,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    num_layers=5,
    num_tapped=5,
)
SMOLLM2 = DraftShape(
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    num_layers=5,
    num_tapped=5,
)


def test_dense_attention_of_the_reported_shape() -> None:
    num_bytes = dense_attention_bytes(32, num_queries=32_768, num_keys=72_768)
    assert num_bytes == 305_211_113_472
    assert readable(num_bytes) == "284 GiB"


def test_dense_attention_grows_with_the_batch() -> None:
    one = dense_attention_bytes(2, num_queries=3, num_keys=5)
    assert one == 2 * 3 * 5 * 4
    assert dense_attention_bytes(2, num_queries=3, num_keys=5, batch=7) == 7 * one


@pytest.mark.parametrize(
    ("shape", "millions"),
    [pytest.param(QWEN3_8B, 1048.6, id="qwen3-8b"), pytest.param(SMOLLM2, 19.4, id="smollm2")],
)
def test_parameter_count(shape: DraftShape, millions: float) -> None:
    assert num_parameters(shape) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize("shape", [QWEN3_8B, SMOLLM2], ids=["qwen3-8b", "smollm2"])
def test_tensors_are_counted_as_by_hand(shape: DraftShape) -> None:
    assert len(tensor_shapes(shape)) == 11 * shape.num_layers + 3
    hidden, head = shape.hidden_size, shape.head_dim
    attention = 2 * hidden * head * (shape.num_heads + shape.num_kv_heads)
    layer = attention + 3 * hidden * shape.intermediate_size + 2 * head + 2 * hidden
    fusion = shape.num_tapped * hidden * hidden
    assert num_parameters(shape) == shape.num_layers * layer + fusion + 2 * hidden


def test_feature_bytes_of_the_published_sample() -> None:
    assert feature_bytes(3072, num_tapped=5, hidden_size=4096, itemsize=2) == 125_829_120


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1024 KiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_readable(num_bytes: int, text: str) -> None:
    assert readable(num_bytes) == text
