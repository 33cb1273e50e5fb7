"""Let the target write the answers of a prompts file: batched, greedy, resumable.

`train.commands.regenerate` is the command.

A drafter must learn what the target says, not what somebody else said: answers of another author
cost most of the acceptance length (DFlash paper, section 4).
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from train.looping import is_looping

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from torch import Tensor

    from train.target import Target


@dataclass(frozen=True)
class Answer:
    """What the target wrote for one prompt.

    Args:
        text: The answer without the end-of-turn token.
        finish_reason: `stop` when the target ended its turn, `length` when the cap cut it.
        dropped: Why the answer is no use for training; empty when it is of use.
    """

    text: str
    finish_reason: str
    dropped: str = ""


def prompt_messages(row: dict[str, Any]) -> list[dict[str, str]]:
    """Return the turns up to and including the last user message.

    Raises:
        ValueError: The row has no user message.
    """
    messages: list[dict[str, str]] = row["messages"]
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    if not users:
        raise ValueError(f"row {row.get('id')!r} has no user message")
    return messages[: users[-1] + 1]


def judge(target: Target, prompt_ids: list[int], new_ids: list[int]) -> Answer:
    """Return the answer in `new_ids`, which still may hold end-of-turn and padding tokens."""
    stop = target.eos_id in new_ids
    ids = new_ids[: new_ids.index(target.eos_id)] if stop else new_ids
    text: str = target.tokenizer.decode(ids, skip_special_tokens=False)
    reason = "stop" if stop else "length"
    if not text.strip():
        return Answer(text, reason, dropped="empty")
    if is_looping(ids, text):
        return Answer(text, reason, dropped="looping")
    prompt_text: str = target.tokenizer.decode(prompt_ids, skip_special_tokens=False)
    again = target.tokenizer(prompt_text + text, add_special_tokens=False)["input_ids"]
    if again != prompt_ids + ids:
        # Training would see tokens that the target did not choose.
        return Answer(text, reason, dropped="tokens change when read back")
    return Answer(text, reason)


@torch.no_grad()
def answer_batch(
    target: Target, conversations: Sequence[list[dict[str, str]]], *, max_new_tokens: int
) -> list[Answer]:
    """Return the target's greedy answers to a batch of conversations."""
    prompts = [
        target.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        for messages in conversations
    ]
    width = max(map(len, prompts))
    input_ids_BS = torch.full((len(prompts), width), target.eos_id)
    attention_mask_BS = torch.zeros_like(input_ids_BS)
    for row, ids in enumerate(prompts):
        # Left padding: generation continues from the last column of every row.
        input_ids_BS[row, width - len(ids) :] = torch.tensor(ids)
        attention_mask_BS[row, width - len(ids) :] = 1
    output_BS: Tensor = target.model.generate(
        input_ids=input_ids_BS.to(target.device),
        attention_mask=attention_mask_BS.to(target.device),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=target.eos_id,
        pad_token_id=target.eos_id,
    )
    new_ids: list[list[int]] = output_BS[:, width:].tolist()
    return [judge(target, prompt, new) for prompt, new in zip(prompts, new_ids, strict=True)]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def pending_rows(rows: Iterable[dict[str, Any]], out: Path) -> list[dict[str, Any]]:
    """Return the rows without an answer in `out`, shortest prompt first to waste little padding."""
    done = {row["id"] for row in read_rows(out)} if out.exists() else set()
    waiting = [row for row in rows if row["id"] not in done]
    return sorted(waiting, key=lambda row: len(json.dumps(prompt_messages(row))))


def regenerate(target: Target, options: argparse.Namespace) -> Counter[str]:
    """Append an answer for every pending row of the prompts file.

    Returns:
        Rows by what became of them; `kept` is one of the keys.
    """
    rows = pending_rows(read_rows(options.prompts), options.out)
    counts: Counter[str] = Counter()
    started = time.monotonic()
    with options.out.open("a", encoding="utf-8") as out:
        for first in range(0, len(rows), options.batch):
            batch = rows[first : first + options.batch]
            answers = answer_batch(
                target,
                [prompt_messages(row) for row in batch],
                max_new_tokens=options.max_new_tokens,
            )
            for row, answer in zip(batch, answers, strict=True):
                counts[answer.dropped or "kept"] += 1
                if not answer.dropped:
                    out.write(conversation_line(row, answer))
            out.flush()
            seconds = time.monotonic() - started
            done = first + len(batch)
            sys.stderr.write(f"{done}/{len(rows)} prompts, {seconds:.0f} s, {dict(counts)}\n")
    sort_like(options.prompts, options.out)
    return counts


def sort_like(prompts: Path, out: Path) -> None:
    """Put the answers, written shortest prompt first, in the order of their prompts."""
    place = {row["id"]: index for index, row in enumerate(read_rows(prompts))}
    rows = sorted(read_rows(out), key=lambda row: place[row["id"]])
    temporary = out.with_name(out.name + ".partial")
    temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    temporary.replace(out)


def conversation_line(row: dict[str, Any], answer: Answer) -> str:
    """Return the output line for one answered row."""
    reply = {"role": "assistant", "content": answer.text}
    conversation = {
        **row,
        "messages": [*prompt_messages(row), reply],
        "finish_reason": answer.finish_reason,
    }
    return json.dumps(conversation) + "\n"
