"""`python -m train generate` on a run that was made in a moment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.tiny_run import make_tokenizer, write_jsonl
from tests.train.trained_run import write_trained_run
from train.__main__ import main
from train.decode import Decoding
from train.draft_tree import Round
from train.generation import TextStream, words

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generate")
    write_trained_run(folder)
    prompts = [{"id": f"p{i}", "messages": [{"role": "user", "content": "x" * i}]} for i in (1, 9)]
    write_jsonl(folder / "prompts.jsonl", prompts)
    return folder


def generate(
    capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str
) -> tuple[int, str, str]:
    options = [str(folder / "out-0"), "--max-new-tokens", "9", "--device", "cpu", *arguments]
    code = main(["generate", *options])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("tree", [[], ["--tree-budget", "12"]], ids=["chain", "tree"])
def test_text_then_figures(
    folder: Path, capsys: pytest.CaptureFixture[str], tree: list[str]
) -> None:
    code, out, err = generate(capsys, folder, "--prompt", "hello", *tree)
    assert (code, err) == (0, "")
    text, _, figures = out.rpartition("\n\n")
    assert text
    assert re.fullmatch(
        r"\[9 tokens in \d passes, acceptance length [1-4]\.\d\d, [\d.]+ tokens/s,"
        r" [\d.]+ times as fast as the target alone, the same text\]\n",
        figures,
    )


def test_each_prompt_of_a_file_is_answered_under_its_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = generate(
        capsys, folder, "--prompts", str(folder / "prompts.jsonl"), "--no-plain"
    )
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("== p")] == ["== p1", "== p9"]
    assert "alone" not in out


def test_prompt_that_the_template_refuses_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trained_run(tmp_path)
    make_tokenizer("{{ raise_exception('no such role') }}").save_pretrained(tmp_path / "model")
    code, out, err = generate(capsys, tmp_path, "--prompt", "hello")
    assert (code, out) == (2, "")
    assert "error: prompt prompt: the target's chat template refuses the turns\n" in err
    assert "Traceback" not in err


def test_reader_that_goes_away_is_no_bug(folder: Path) -> None:
    arguments = ["generate", str(folder / "out-0"), "--prompt", "hello", "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "train", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(1)
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=120) == 0, stderr
    assert b"Traceback" not in stderr


def test_sampling_follows_its_seed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def text(seed: str) -> str:
        sampled = ("--temperature", "2.0", "--seed", seed, "--no-plain")
        code, out, err = generate(capsys, folder, "--prompt", "hello", *sampled)
        assert (code, err) == (0, "")
        return out.rpartition("\n\n")[0]

    assert text("1") == text("1")
    assert text("1") != text("2")


def test_characters_of_several_tokens_come_whole() -> None:
    tokenizer = make_tokenizer()
    tokens = tokenizer("a\N{EURO SIGN}b", add_special_tokens=False)["input_ids"]
    assert len(tokens) == 5
    pieces: list[str] = []
    stream = TextStream(tokenizer, pieces.append)
    for token in tokens:
        stream.add([token])
    stream.close()
    assert [piece for piece in pieces if piece] == ["a", "\N{EURO SIGN}", "b"]
    cut = TextStream(tokenizer, pieces.append)
    cut.add(tokens[:2])
    cut.close()
    assert pieces[-1] == "a\N{REPLACEMENT CHARACTER}"


def test_words_say_when_the_text_differs() -> None:
    drafted = Decoding((1, 2, 3), rounds=(Round(1, num_emitted=2),), seconds=1.0)
    plain = Decoding((1, 2, 4), rounds=(Round(0, num_emitted=1),) * 2, seconds=2.0)
    assert words(drafted, plain, is_greedy=True).endswith(
        "2.00 times as fast as the target alone, NOT the same text"
    )
    assert words(drafted, plain, is_greedy=False).endswith("alone")
    assert words(Decoding((1,), rounds=(), seconds=0.0), None, is_greedy=True) == "1 tokens"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param([], "--prompt --prompts is required", id="neither"),
        pytest.param(["--prompt", "x", "--prompts", "y"], "not allowed with", id="both"),
        pytest.param(["--prompt", "x", "--temperature", "-1"], "found -1", id="temperature"),
        pytest.param(["--prompt", "x", "--max-new-tokens", "0"], "at least 1", id="no-tokens"),
        pytest.param(["--prompt", "x", "--tree-budget", "99999"], "at most 4096", id="huge-tree"),
        pytest.param(["--prompt", "x", "--seed", str(2**70)], "at most 4294967295", id="seed"),
    ],
)
def test_wrong_arguments_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        generate(capsys, folder, *arguments)
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err
