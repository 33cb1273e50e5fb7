from __future__ import annotations

import io

import pytest

from tests.train.tiny_run import make_model, make_tokenizer
from tests.train.tiny_training import LAYERS, config_with, new_pair
from train.attention import UnfusedAttentionError
from train.fused_proof import AttentionMemory
from train.progress import Progress
from train.target import Target
from train.warmup import blank_rows, warm_up, words

GIB, MIB = 2**30, 2**20


def memory(forward: int, backward: int = 0, *, inputs: int, dense: int) -> AttentionMemory:
    return AttentionMemory(
        forward_bytes=forward, backward_bytes=backward, inputs_bytes=inputs, dense_bytes=dense
    )


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(memory(90 * MIB, 400 * MIB, inputs=120 * MIB, dense=12 * GIB), id="fused"),
        pytest.param(memory(6 * GIB, inputs=MIB, dense=12 * GIB), id="half"),
        pytest.param(memory(99 * MIB, inputs=8 * MIB, dense=64 * MIB), id="too-few-keys-to-tell"),
    ],
)
def test_memory_that_may_be_fused_passes(found: AttentionMemory) -> None:
    found.require_fused()


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(memory(24 * GIB, inputs=MIB, dense=12 * GIB), id="forward"),
        pytest.param(memory(MIB, 13 * GIB, inputs=MIB, dense=12 * GIB), id="backward-alone"),
        pytest.param(memory(6 * GIB + 1, inputs=MIB, dense=12 * GIB), id="over-half"),
    ],
)
def test_memory_of_all_scores_stops_the_run(found: AttentionMemory) -> None:
    with pytest.raises(UnfusedAttentionError, match="scores would take 12 GiB: the fused kernel"):
        found.require_fused()


def test_summary_claims_no_more_than_was_proven() -> None:
    told = memory(90 * MIB, inputs=10 * MIB, dense=12 * GIB)
    silent = memory(9 * MIB, inputs=9 * MIB, dense=12 * MIB)
    assert (told.summary()["is_fused"], silent.summary()["is_fused"]) == (True, None)
    assert told.summary()["dense_bytes"] == 12 * GIB
    assert words(told, num_shapes=4, seconds=9.6) == (
        "4 shapes compiled in 10 s; a layer's attention takes 90 MiB, its scores would take 12 GiB:"
        " fused"
    )
    assert words(silent, num_shapes=2, seconds=1).endswith(
        "too few keys to tell whether it is fused"
    )


def test_dense_attention_needs_no_warm_up() -> None:
    pair = new_pair(Target(make_model(), make_tokenizer(), layer_ids=LAYERS))
    stream = io.StringIO()
    guard = warm_up(config_with(), pair=pair, progress=Progress(every_seconds=1.0, stream=stream))
    assert stream.getvalue() == ""
    found = guard.summary()
    assert (found["num_shapes"], found["warm_up_seconds"], found["attention"]) == (0, 0.0, None)
    assert found["compiled_after_warm_up"]["num_graphs"] == 0


def test_blank_rows_have_the_shape_of_a_micro_batch() -> None:
    pair = new_pair(Target(make_model(), make_tokenizer(), layer_ids=LAYERS))
    rows = blank_rows(config_with(), pair=pair, num_tokens=64)
    assert rows.ids_BS.shape == rows.loss_mask_BS.shape == rows.keys_BS.shape == (2, 64)
    assert rows.target_hidden_BSF.shape == (2, 64, 2 * 32)
    assert bool(rows.loss_mask_BS.all())
