from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.train.tiny_run import EOS, make_model, make_tokenizer
from train.config import TargetConfig
from train.selftest import SelfTestError, check_cache, check_target
from train.settings import ConfigError
from train.target import Target
from train.target_loading import dtype_for, load_target, locate

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [[1, 9, 8, 7, 6, 5, 4, 9, 8], [1, 30, 31, 32, 33, 34, 35]]
LAYERS = (1, 3, 4)


@pytest.fixture(name="tiny")
def _tiny() -> Target:
    return Target(make_model(), make_tokenizer(), layer_ids=LAYERS)


def test_states_are_the_hidden_states_behind_the_layers(tiny: Target) -> None:
    ids_1T = torch.tensor(ROWS[:1])
    with torch.no_grad():
        output = tiny.model(ids_1T, output_hidden_states=True)
    states = tiny.states(ids_1T)
    wanted = torch.cat([output.hidden_states[layer + 1] for layer in LAYERS], dim=-1)
    assert torch.equal(states.tapped_BTF, wanted)
    assert torch.equal(states.final_BTD, output.hidden_states[-1])
    assert torch.equal(tiny.logits(states.final_BTD), output.logits)
    assert torch.equal(tiny.embed(ids_1T), output.hidden_states[0])


def test_head_is_not_run_for_states(tiny: Target) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    tiny.model.get_output_embeddings().register_forward_hook(fail)
    tiny.states(torch.tensor(ROWS[:1]))


def test_target_gets_no_gradient_and_lets_it_through(tiny: Target) -> None:
    final_1D = torch.ones(1, 32, requires_grad=True)
    tiny.logits(final_1D).sum().backward()  # type: ignore[no-untyped-call]
    assert final_1D.grad is not None
    assert all(parameter.grad is None for parameter in tiny.model.parameters())
    assert not tiny.states(torch.tensor(ROWS[:1])).tapped_BTF.requires_grad


def test_selftest_passes_on_a_good_target(tiny: Target) -> None:
    check_target(tiny, ROWS)


def test_selftest_notices_a_layer_that_is_off_by_one(tiny: Target) -> None:
    tiny.layer_ids = (1, 3, 5)
    tiny._decoder.layers[2].register_forward_hook(  # noqa: SLF001  the fault to be found
        lambda _module, _inputs, output: tiny._keep(5, _module, _inputs, output)  # noqa: SLF001
    )
    with pytest.raises(SelfTestError, match="not the hidden states"):
        check_target(tiny, ROWS)


def test_selftest_notices_changed_embeddings(tiny: Target) -> None:
    original = tiny.embed
    tiny.embed = lambda ids_BT: original(ids_BT) * 2  # type: ignore[method-assign]
    with pytest.raises(SelfTestError, match="embeddings"):
        check_target(tiny, ROWS)


def test_selftest_notices_changed_logits(tiny: Target) -> None:
    original = tiny.logits
    tiny.logits = lambda final_D: original(final_D).tanh()  # type: ignore[method-assign]
    with pytest.raises(SelfTestError, match="logits"):
        check_target(tiny, ROWS)


def test_selftest_notices_rows_that_disturb_each_other(tiny: Target) -> None:
    def mix(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        return output + output.mean(dim=0, keepdim=True)

    tiny.model.get_input_embeddings().register_forward_hook(mix)
    with pytest.raises(SelfTestError, match="row 0 in a batch"):
        check_target(tiny, ROWS)


def test_selftest_notices_states_that_remember_rejected_tokens(tiny: Target) -> None:
    seen: list[torch.Tensor] = []

    def remember(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        seen.append(output)
        return output + sum(one.sum() for one in seen if one.shape == output.shape)

    tiny._decoder.layers[1].register_forward_hook(remember, prepend=True)  # noqa: SLF001
    with pytest.raises(SelfTestError, match="cannot take back rejected draft tokens"):
        check_cache(tiny, torch.tensor(ROWS[:1]))


def test_selftest_takes_no_nan_for_a_pass(tiny: Target) -> None:
    weight = tiny.model.model.layers[0].mlp.down_proj.weight
    weight.data.fill_(torch.nan)
    with pytest.raises(SelfTestError):
        check_target(tiny, ROWS)


def test_loads_a_folder(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    target = load_target(TargetConfig(path=str(tmp_path)), num_taps=2)
    assert target.layer_ids == (1, 3)
    assert target.eos_id == EOS
    assert target.dtype == torch.float32
    check_target(target, ROWS)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"layer_ids": (1, 6)}, "target.layer_ids", id="no-such-layer"),
        pytest.param({"eos_token_id": 5000}, "target.eos_token_id", id="no-such-token"),
    ],
)
def test_settings_that_do_not_fit_the_target(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=problem):
        load_target(TargetConfig(path=str(tmp_path), **changes))


def test_too_many_taps_name_the_setting(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"draft\.num_layers: .*target\.layer_ids"):
        load_target(TargetConfig(path=str(tmp_path)), num_taps=9)


def test_folder_without_a_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_target(TargetConfig(path=str(tmp_path)))
    (problem,) = caught.value.problems
    assert problem.startswith(f"target.path: cannot load {tmp_path}: ")
    assert "\n" not in problem


def test_locate_knows_the_forms_of_a_target(tmp_path: Path) -> None:
    gguf = tmp_path / "x.gguf"
    gguf.touch()
    assert locate(str(gguf)) == (str(tmp_path), "x.gguf")
    assert locate(str(tmp_path)) == (str(tmp_path), None)
    assert locate("org/model") == ("org/model", None)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("package:no_such_package/x.gguf", "package 'no_such_package' is not installed"),
        ("package:../x.gguf", "package '..' is not installed"),
        ("package:torch/no-such-file.gguf", "no file at .*no-such-file.gguf"),
        ("./no-such-folder", r"nothing at \./no-such-folder"),
    ],
)
def test_missing_package_target_is_named(path: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        locate(path)


def test_package_target_is_found_without_importing_it() -> None:
    folder, name = locate("package:transformers/__init__.py")
    assert folder.endswith("transformers")
    assert name == "__init__.py"


def test_dtype_follows_the_device() -> None:
    assert dtype_for("auto", torch.device("cpu")) == torch.float32
    assert dtype_for("auto", torch.device("cuda")) == torch.bfloat16
    assert dtype_for("bfloat16", torch.device("cpu")) == torch.bfloat16


def test_last_layer_cannot_be_tapped() -> None:
    with pytest.raises(ConfigError) as caught:
        Target(make_model(), make_tokenizer(), layer_ids=(1, 5))
    assert caught.value.problems == ("target.layer_ids: found [1, 5], wanted numbers below 5",)


def test_target_that_cannot_run_is_one_line() -> None:
    model = make_model()
    model.model.layers[2].mlp.up_proj = torch.nn.Linear(31, 48)
    with pytest.raises(ConfigError, match=r"\Atarget\.path: LlamaForCausalLM fails: mat1 and mat2"):
        Target(model, make_tokenizer(), layer_ids=(1,))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        pytest.param("chat_template.jinja", None, "its tokenizer has no chat template", id="base"),
        pytest.param("model.safetensors", b"x" * 99, "deserializing header", id="weights"),
        pytest.param("model.safetensors", None, "no file named", id="no-weights"),
        pytest.param("config.json", b"{", "not a valid JSON file", id="config"),
        pytest.param("tokenizer.json", b"{", "", id="tokenizer"),
    ],
)
def test_damaged_folder_is_one_line(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_target(TargetConfig(path=str(tmp_path)))
    (problem,) = caught.value.problems
    assert problem.startswith(f"target.path: cannot load {tmp_path}: ")
    assert reason in problem
    assert "\n" not in problem
