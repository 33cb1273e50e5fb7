"""Targets of many architectures, tiny and random, through a folder as a user has them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers import logging as transformers_logging

from tests.train.conftest import keys
from tests.train.decoding import decode_blocks, decode_plain
from tests.train.tiny_run import EOS, MASK, make_tokenizer
from train.attention import DenseMask
from train.config import TargetConfig
from train.course import Pair
from train.drafter import Drafter
from train.drafter_config import drafter_config_for
from train.objective import Objective, Rows, draft_loss
from train.selftest import SelfTestError, check_target
from train.selftest_drafting import check_drafting
from train.slot_weights import PathWeights
from train.target import Target
from train.target_ends import Ends, ends_of
from train.target_loading import load_target

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES: dict[str, Any] = {
    "vocab_size": 260,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "pad_token_id": 0,
}
WIDE: dict[str, Any] = {"head_dim": 8}
GEMMA = WIDE | {"query_pre_attn_scalar": 8, "sliding_window": 6, "final_logit_softcapping": 3.0}
GRANITE = {"embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.5}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": WIDE,
    "mistral": {"sliding_window": 6},
    "phi3": {},
    "gemma": WIDE,
    "gemma2": GEMMA | {"attn_logit_softcapping": 5.0},
    "gemma3_text": GEMMA,
    "granite": GRANITE,
    "hyperclovax": GRANITE,
    "cohere": {"logit_scale": 0.25},
    "gpt_neox": {},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "qwen3_moe": WIDE | {"num_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2},
}
WANTED_ENDS = {
    "gemma2": Ends(logit_cap=3.0),
    "gemma3_text": Ends(logit_cap=3.0),
    "granite": Ends(embedding_scale=3.0, logit_scale=0.25),
    "hyperclovax": Ends(embedding_scale=3.0, logit_scale=4.0),
    "cohere": Ends(logit_scale=0.25),
}
ROWS = [[1, 9, 8, 7, 6, 5, 4, 9, 8, 77, 150, 200, 11], [1, 30, 31, 32, 33, 34, 35]]
LAYERS = (1, 3, 4)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Configurations told a field that they do not have say so."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.CRITICAL)
    yield
    transformers_logging.set_verbosity(verbosity)


def make(architecture: str, **changes: Any) -> Any:
    sizes = SIZES | ARCHITECTURES.get(architecture, {}) | changes
    torch.manual_seed(0)
    from_config: Any = AutoModelForCausalLM.from_config
    return from_config(AutoConfig.for_model(architecture, **sizes)).eval()


@pytest.fixture(params=ARCHITECTURES, name="target")
def _target(request: pytest.FixtureRequest, tmp_path: Any) -> Target:
    make(request.param).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    return load_target(TargetConfig(path=str(tmp_path), layer_ids=LAYERS))


def drafter_for(target: Target) -> Drafter:
    torch.manual_seed(1)
    config = drafter_config_for(
        target.config, num_layers=2, block_size=4, mask_token_id=MASK, target_layer_ids=LAYERS
    )
    return Drafter(config)


def test_a_target_of_any_architecture_trains_and_decodes(target: Target) -> None:
    name = target.config.model_type
    assert target._ends == WANTED_ENDS.get(name, Ends())  # noqa: SLF001  what was found
    check_target(target, ROWS)
    ids_1T = torch.tensor(ROWS[:1])
    with torch.no_grad():
        output = target.model(ids_1T, output_hidden_states=True)
    states = target.states(ids_1T)
    wanted = torch.cat([output.hidden_states[layer + 1] for layer in LAYERS], dim=-1)
    assert torch.equal(states.tapped_BTF, wanted)
    torch.testing.assert_close(target.embed(ids_1T), output.hidden_states[0])
    torch.testing.assert_close(target.logits(states.final_BTD), output.logits)

    drafter = drafter_for(target)
    ids_BS = torch.randint(4, 250, (2, 20))
    states = target.states(ids_BS)
    rows = Rows(
        ids_BS,
        torch.ones(2, 20, dtype=torch.bool),
        keys(2, 20),
        states.tapped_BTF,
        target_final_BSD=states.final_BTD,
    )
    objective = Objective(4, PathWeights(), DenseMask(), temperature=1.0)
    check_drafting(Pair(target, drafter), rows=rows, objective=objective)
    sums = draft_loss(drafter, target=target, rows=rows, objective=objective)
    sums.numerator.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.any() for p in drafter.parameters())
    assert all(p.grad is None for p in target.model.parameters())

    limits: dict[str, Any] = {"max_new_tokens": 12, "stop_ids": ()}
    plain = decode_plain(target, ROWS[1], **limits)
    assert decode_blocks(target, drafter, ROWS[1], **limits).tokens == plain.tokens


def test_plain_decoding_is_what_the_architecture_generates(target: Target) -> None:
    generated = target.model.generate(
        torch.tensor(ROWS[1:]), max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    plain = decode_plain(target, ROWS[1], max_new_tokens=12, stop_ids=())
    assert list(plain.tokens) == generated[0, len(ROWS[1]) :].tolist()


@pytest.mark.parametrize("architecture", ["gemma2", "granite", "hyperclovax", "cohere"])
def test_ends_are_found_in_bfloat16_too(architecture: str) -> None:
    model = make(architecture).to(torch.bfloat16)
    assert ends_of(model) == WANTED_ENDS[architecture]
    check_target(Target(model, make_tokenizer(), layer_ids=LAYERS), ROWS)


def test_an_embedding_scaled_outside_its_module_is_found() -> None:
    """As older versions of transformers do for Gemma, by a number that no configuration names."""
    model = make("llama")

    def scale(_module: object, arguments: tuple[object, ...], options: dict[str, Any]) -> Any:
        embedded = model.get_input_embeddings()(options.pop("input_ids"))
        return arguments, options | {"inputs_embeds": embedded * 32**0.5}

    model.get_decoder().register_forward_pre_hook(scale, with_kwargs=True)
    assert ends_of(model) == Ends(embedding_scale=32**0.5)


@pytest.mark.parametrize("architecture", ["gpt2", "opt"])
def test_learned_positions_are_refused_in_words(architecture: str) -> None:
    tiny = {"word_embed_proj_dim": 32} if architecture == "opt" else {}
    target = Target(make(architecture, **tiny), make_tokenizer(), layer_ids=LAYERS)
    with pytest.raises(SelfTestError, match="learned positions"):
        check_target(target, ROWS)


def test_a_target_that_cannot_take_back_tokens_is_refused() -> None:
    model = make("qwen3_next", linear_num_value_heads=4, linear_num_key_heads=2, **WIDE)
    target = Target(model, make_tokenizer(), layer_ids=LAYERS)
    with pytest.raises(SelfTestError, match="cannot take back rejected draft tokens"):
        check_target(target, ROWS)
