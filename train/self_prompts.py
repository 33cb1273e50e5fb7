"""Let the target write the user's prompts itself.

A chat model that is given nothing but the header of a user's turn writes what users ask it: prompts
of its own distribution, as many as wanted, with no other author's licence (Magpie, arXiv
2406.08464). `train regenerate` then lets it answer them.

`train.commands.self_prompts` is the command.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from train.conversations import read_conversations
from train.durable import write_whole
from train.journal import Journal
from train.looping import is_looping
from train.near_duplicates import NearDuplicates, normalised
from train.pace import Pace
from train.replies import ReplyWriter, Request, Sampling
from train.settings import ConfigError
from train.writing_target import check_target_path, load_writer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from train.replies import Reply
    from train.target import Target

MIN_WORDS = 4
SURPLUS = 1.25
MAX_ATTEMPTS_PER_PROMPT = 4
"""Prompts written for each one wanted, before the command gives up on a target."""
JOURNAL_SETTINGS = ("target", "eos_token_id", "seed", "temperature", "top_p", "max_new_tokens")


@dataclass(frozen=True)
class Chosen:
    """The prompts that a set of attempts gives.

    Args:
        held_out: Texts by attempt.
        training: Texts by attempt; none is alike to one of `held_out`.
        dropped: Attempts by the reason why they are not used.
    """

    held_out: dict[int, str]
    training: dict[int, str]
    dropped: Counter[str]


def user_header_ids(target: Target) -> tuple[int, ...]:
    """Return the tokens up to where a user's first words stand.

    Raises:
        ConfigError: The target's chat template does not render a user's turn.
    """
    mark = "\N{OBJECT REPLACEMENT CHARACTER}"
    try:
        text: str = target.tokenizer.apply_chat_template(
            [{"role": "user", "content": mark}], tokenize=False
        )
    except Exception as error:  # the template decides what it raises, and through which package
        raise ConfigError([f"--target: its chat template cannot be used: {error}"]) from error
    header, found, _ = text.partition(mark)
    if not found or not header:
        raise ConfigError(["--target: its chat template puts nothing before a user's first words"])
    return tuple(target.tokenizer(header, add_special_tokens=False)["input_ids"])


def judged(reply: Reply, target: Target) -> dict[str, Any]:
    """Return the journal's entry of one attempt, with `dropped` when it is no use as a prompt."""
    text: str = target.tokenizer.decode(reply.ids, skip_special_tokens=False).strip()
    entry: dict[str, Any] = {"attempt": reply.request.key, "text": text}
    if not reply.ended:
        # The rest of such a text would be missing, and a drafter would learn nothing from it.
        return entry | {"dropped": "cut off"}
    if len(normalised(text).split()) < MIN_WORDS:
        return entry | {"dropped": "too short"}
    if is_looping(reply.ids, text):
        return entry | {"dropped": "looping"}
    specials = set(target.tokenizer.all_special_ids)
    if specials & set(reply.ids) or not is_readable(text):
        return entry | {"dropped": "holds what no user writes"}
    return entry


def is_readable(text: str) -> bool:
    """Return whether a text has letters, and neither control nor replacement characters."""
    without_breaks = re.sub(r"[\n\t]", " ", text)
    has_letters = any(one.isalpha() for one in text)
    return has_letters and without_breaks.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text


def choose(
    entries: Iterable[dict[str, Any]], *, num_held_out: int, excluded: Iterable[str]
) -> Chosen:
    """Split attempts into held-out prompts, prompts to train on, and others.

    The first usable attempts are held out, the rest is for training, so that asking for more
    prompts later keeps the held-out ones.

    Args:
        entries: From `judged`, in any order.
        num_held_out: Prompts to hold out.
        excluded: Texts that no chosen prompt may be alike to.
    """
    chosen = Chosen(held_out={}, training={}, dropped=Counter())
    barred = NearDuplicates()
    for text in excluded:
        barred.add(text)
    seen: set[str] = set()
    for entry in sorted(entries, key=lambda one: int(one["attempt"])):
        text, key = entry["text"], normalised(entry["text"])
        reason = entry.get("dropped") or ("repeated" if key in seen else "")
        if not reason and barred.holds_alike(text):
            reason = "alike to a held-out or excluded prompt"
        if reason:
            chosen.dropped[reason] += 1
            continue
        seen.add(key)
        if len(chosen.held_out) < num_held_out:
            chosen.held_out[entry["attempt"]] = text
            barred.add(text)
        else:
            chosen.training[entry["attempt"]] = text
    return chosen


def write_prompts(target: Target, journal: Journal, options: argparse.Namespace) -> Chosen:
    """Let the target write until there are enough prompts.

    Raises:
        ConfigError: The target writes too few usable ones.
    """
    excluded = list(excluded_texts(options.exclude))
    wanted = options.num + options.held_out
    # A quarter more than are missing: that many usually turn out to be of no use.
    num_attempts = math.ceil(SURPLUS * wanted)
    while True:
        attempt(target, num_attempts, journal=journal, options=options)
        chosen = choose(
            [entry for entry in journal.entries if entry["attempt"] < num_attempts],
            num_held_out=options.held_out,
            excluded=excluded,
        )
        missing = wanted - len(chosen.held_out) - min(options.num, len(chosen.training))
        if missing == 0:
            return chosen
        if num_attempts >= MAX_ATTEMPTS_PER_PROMPT * wanted:
            found = f"found {wanted - missing} usable of {num_attempts} written"
            raise ConfigError([f"--num: {found}, wanted {wanted}; dropped {dict(chosen.dropped)}"])
        num_attempts += math.ceil(SURPLUS * missing)


def attempt(
    target: Target, num_attempts: int, *, journal: Journal, options: argparse.Namespace
) -> None:
    """Let the target write the attempts up to a number that are not in the journal yet."""
    header = user_header_ids(target)
    done = {entry["attempt"] for entry in journal.entries}
    waiting = deque(
        Request(key=number, prompt_ids=header)
        for number in range(num_attempts)
        if number not in done
    )
    pace = Pace(len(waiting), every_seconds=options.every_seconds, noun="prompts")
    writer = ReplyWriter(
        target,
        batch=options.batch,
        max_new_tokens=options.max_new_tokens,
        sampling=Sampling(options.temperature, top_p=options.top_p, seed=options.seed),
        on_token=pace.token,
    )
    for replies in writer.run(waiting):
        journal.append(judged(reply, target) for reply in replies)
        pace.finished(len(replies))


def excluded_texts(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the users' turns of data files.

    Raises:
        ConfigError: A file cannot be read.
    """
    for path in paths:
        for conversation in read_conversations(path):
            for message in conversation.messages:
                if message["role"] == "user":
                    yield message["content"]


def prompt_line(attempt: int, text: str) -> str:
    """Return the line of a prompts file."""
    messages = [{"role": "user", "content": text}]
    row = {"id": f"self-{attempt:06d}", "source": "self", "messages": messages}
    return json.dumps(row, ensure_ascii=False) + "\n"


def write_files(options: argparse.Namespace) -> None:
    """Write both prompts files.

    Raises:
        ConfigError: An option, the target, or what it writes cannot be used.
    """
    if options.temperature == 0.0:
        raise ConfigError(["--temperature: found 0, wanted more: all prompts would be the same"])
    check_target_path(options.target)
    settings = {name: getattr(options, name) for name in JOURNAL_SETTINGS}
    with Journal(options.out / "self-prompts.journal.jsonl", settings) as journal:
        chosen = write_prompts(load_writer(options), journal, options)
    for split, texts, limit in (
        ("held-out", chosen.held_out, options.held_out),
        ("train", chosen.training, options.num),
    ):
        lines = [prompt_line(*item) for item in list(texts.items())[:limit]]
        write_whole(options.out / f"{split}.prompts.jsonl", "".join(lines))
        sys.stderr.write(f"{split}: {len(lines)} prompts\n")
    sys.stderr.write(f"not used: {dict(chosen.dropped)}\n")
