"""A tiny model folder, conversations and run files for tests; nothing reads the network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from train.data import Encoding

if TYPE_CHECKING:
    from pathlib import Path

    from train.target import Target

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|reserved|>")
EOS = SPECIALS.index("<|im_end|>")
MASK = SPECIALS.index("<|reserved|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

RUN_FILE = """\
name = "tiny"

[target]
path = "model"

[draft]
mask_token_id = {mask}
num_layers = 2
block_size = 4

[data]
train = "train.jsonl"
held_out = "held-out.jsonl"
max_length = 64
buckets = [32, 64]

[train]
device = "cpu"
epochs = {epochs}
peak_lr = 5e-3
num_anchors = 8
micro_batch = 2
cache_features_bytes = 1000000

[eval]
num_prompts = 3
max_new_tokens = 6
num_anchors = 8

[log]
every_steps = 1
"""


def make_tokenizer(chat_template: str = CHAT_TEMPLATE) -> Any:
    """One token per byte, and the special tokens in front."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*SPECIALS, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIALS))
    names = dict(zip(("pad_token", "bos_token", "eos_token"), SPECIALS, strict=False))
    wrapped: Any = PreTrainedTokenizerFast
    return wrapped(tokenizer_object=tokenizer, chat_template=chat_template, **names)


def encoding_for(target: Target) -> Encoding:
    """How the tests that train turn conversations into samples."""
    return Encoding(
        target.tokenizer,
        eos_id=target.eos_id,
        mask_token_id=MASK,
        max_length=96,
        min_supervised=2,
        vocab_size=target.config.vocab_size,
    )


def make_model(**changes: Any) -> Any:
    """A random Llama over the tokenizer's vocabulary; the same at every call."""
    settings: dict[str, Any] = {
        "vocab_size": 256 + len(SPECIALS),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "bos_token_id": 1,
        "eos_token_id": EOS,
    }
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM
    return model(LlamaConfig(**(settings | changes))).eval()


def conversation(question: str, answer: str) -> dict[str, Any]:
    """One line of a data file."""
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"messages": messages}


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write_run(folder: Path, *, epochs: int = 2) -> Path:
    """Write model, data and run file into a folder; return the run file."""
    make_model().save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    rows = [conversation(f"q{i}", "abcdefgh" * (1 + i % 2)) for i in range(6)]
    write_jsonl(folder / "train.jsonl", rows)
    held_out = [conversation(f"h{i}", "abcdefgh") for i in range(4)]
    write_jsonl(folder / "held-out.jsonl", held_out)
    run_file = folder / "run.toml"
    run_file.write_text(RUN_FILE.format(mask=MASK, epochs=epochs), "utf-8")
    return run_file
