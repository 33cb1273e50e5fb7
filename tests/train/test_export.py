"""The exported files alone give what the trainer gives, by a reader that shares no code with it."""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.train.decoding import decode
from tests.train.independent_reader import IndependentReader
from tests.train.tiny_run import EOS, MASK, make_model, make_tokenizer
from tests.train.trained_run import LAYER_IDS, make_drafter, write_trained_run
from train.__main__ import main
from train.checkpoint import load_checkpoint
from train.decode import Limits
from train.drafting import Chain
from train.export import Source, export
from train.reader import Unseen
from train.target import Target

if TYPE_CHECKING:
    from pathlib import Path

PROMPTS = [[1, 20, 21, 22, 30], [9], [50, 60, 70, 80, 90, 100, 110, 120]]
LAYOUTS = ["speculators", "z-lab"]


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    write_trained_run(folder)
    # As targets come: numbers that bfloat16 holds.
    make_model().to(torch.bfloat16).float().save_pretrained(folder / "model")
    for layout in LAYOUTS:
        arguments = [str(folder / "out-0"), str(folder / layout), "--format", layout]
        assert main(["export", *arguments, "--target-name", "some/target"]) == 0
    return folder


@pytest.fixture(scope="module", name="target")
def _target(folder: Path) -> Target:
    factory: Any = AutoModelForCausalLM
    model = factory.from_pretrained(folder / "model", dtype=torch.float32)
    return Target(model, make_tokenizer(), layer_ids=LAYER_IDS, eos_id=EOS)


@pytest.fixture(name="reader", params=["native", *LAYOUTS])
def _reader(request: pytest.FixtureRequest, folder: Path, target: Target) -> IndependentReader:
    place = {"native": folder / "out-0" / "checkpoint"}
    return IndependentReader(place.get(request.param, folder / request.param), target.model)


@torch.no_grad()
def test_files_alone_give_the_trainers_logits(
    folder: Path, target: Target, reader: IndependentReader
) -> None:
    drafter = load_checkpoint(folder / "out-0" / "checkpoint")
    for text in PROMPTS[::2]:
        proposer = Chain(drafter).begin(target, num_texts=1)
        tapped = target.states(torch.tensor([text[:-1]])).tapped_BTF
        logits = proposer.drafts.logits(  # type: ignore[attr-defined]
            torch.tensor([text[-1:]]),
            starts_B1=torch.tensor([[len(text) - 1]]),
            unseen=Unseen(tapped, [len(text) - 1]),
        )
        torch.testing.assert_close(reader.draft_logits(text), logits[0], atol=1e-4, rtol=1e-4)


def test_files_alone_give_the_same_text_in_the_same_rounds(
    folder: Path, target: Target, reader: IndependentReader
) -> None:
    drafter = load_checkpoint(folder / "out-0" / "checkpoint")
    limits = Limits(16, {EOS})
    found = decode(target, PROMPTS, strategy=Chain(drafter), limits=limits)
    for prompt, one in zip(PROMPTS, found, strict=True):
        tokens, rounds = reader.decode(prompt, 16, EOS)
        assert tokens == list(one.tokens)
        assert rounds == [outcome.num_emitted for outcome in one.rounds]


def test_speculators_configuration_says_what_engines_read(folder: Path) -> None:
    config = json.loads((folder / "speculators" / "config.json").read_text())
    assert config["speculators_model_type"] == "dflash"
    assert config["aux_hidden_state_layer_ids"] == [layer + 1 for layer in LAYER_IDS]
    assert (config["block_size"], config["mask_token_id"]) == (4, MASK)
    assert config["sample_from_anchor"] is False
    served = config["speculators_config"]
    assert served["proposal_methods"][0]["speculative_tokens"] == 3
    assert served["verifier"] == {
        "name_or_path": "some/target",
        "architectures": ["LlamaForCausalLM"],
    }
    assert config["draft_vocab_size"] == config["transformer_layer_config"]["vocab_size"] == 260


@pytest.mark.parametrize(("layout", "num_more"), [("speculators", 2), ("z-lab", 0)])
def test_tensors_are_all_there_in_bfloat16(folder: Path, layout: str, num_more: int) -> None:
    tensors = load_file(folder / layout / "model.safetensors")
    assert len(tensors) == 11 * 2 + 3 + num_more
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert sorted(path.name for path in (folder / layout).iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_scaled_embeddings_are_scaled_in_the_table(folder: Path, tmp_path: Path) -> None:
    """A target that multiplies its embeddings, as Granite does."""
    del folder
    target = Target(make_model(), make_tokenizer(), layer_ids=LAYER_IDS, eos_id=EOS)
    plain = target.embed(torch.arange(8))
    scaled = Target(make_model(), make_tokenizer(), layer_ids=LAYER_IDS, eos_id=EOS)
    scaled.embed = lambda ids_BT: 3.0 * target.embed(ids_BT)  # type: ignore[method-assign]
    export(Source(make_drafter(), scaled, "t"), tmp_path / "out", layout="speculators")
    table = load_file(tmp_path / "out" / "model.safetensors")["embed_tokens.weight"]
    torch.testing.assert_close(table[:8].float(), 3.0 * plain, atol=1e-2, rtol=1e-2)


def test_nothing_is_overwritten_or_left_half_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(folder / "out-0")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    assert main(["export", run, str(tmp_path / "full"), "--format", "speculators"]) == 2
    assert "holds files already" in capsys.readouterr().err
    drafter = make_drafter()
    with torch.no_grad():
        drafter.norm.weight[0] = torch.nan
    target = Target(make_model(), make_tokenizer(), layer_ids=LAYER_IDS, eos_id=EOS)
    for layout in LAYOUTS:
        with pytest.raises(Exception, match=r"norm\.weight is not finite"):
            export(Source(drafter, target, "t"), tmp_path / "out", layout=layout)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_too_little_space_is_one_line_and_leaves_nothing(
    folder: Path, tmp_path: Path, layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The largest file that this process may write stands for a disk that is full."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most[1]))
    try:
        code = main(["export", str(folder / "out-0"), str(tmp_path / "x"), "--format", layout])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 7
    assert line.startswith("error: [Errno 27] File too large: ")
    assert "model.safetensors" in line
    assert list(tmp_path.iterdir()) == []
