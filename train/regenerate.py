"""Let the target write the answers of conversations: batched, sampled or greedy, resumable.

`train.commands.regenerate` is the command.

A drafter must learn what the target says, not what somebody else said: answers of another author
cost most of the acceptance length (DFlash paper, section 4).
"""

from __future__ import annotations

import json
import sys
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from train.conversations import read_rows
from train.dialogue import Answering, Dialogue
from train.durable import write_whole
from train.journal import Journal
from train.pace import Pace
from train.replies import ReplyWriter, Sampling
from train.settings import ConfigError
from train.writing_target import check_target_path, load_writer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from pathlib import Path

    from train.target import Target

JOURNAL_SETTINGS = (
    "target",
    "eos_token_id",
    "max_new_tokens",
    "temperature",
    "top_p",
    "seed",
    "thinking",
    "loops",
)


def answer_all(
    target: Target,
    dialogues: Iterable[Dialogue],
    *,
    journal: Journal,
    options: argparse.Namespace,
) -> None:
    """Let the target answer, and note each finished dialogue in the journal."""
    answering = Answering(
        target,
        max_new_tokens=options.max_new_tokens,
        thinking=thinking_of(options),
        cuts_loops=options.loops == "cut",
    )
    asked = [(one, None if one.dropped else answering.ask(one)) for one in dialogues]
    journal.append(dialogue.entry() for dialogue, request in asked if request is None)
    # Neighbours of like length waste little padding; if memory runs out, it does so early.
    requests = sorted(
        (request for _, request in asked if request), key=lambda one: -len(one.prompt_ids)
    )
    outcomes = Counter(entry.get("dropped", "kept") for entry in journal.entries)
    pace = Pace(len(requests), every_seconds=options.every_seconds, noun="conversations")
    writer = ReplyWriter(
        target,
        batch=options.batch,
        max_new_tokens=options.max_new_tokens,
        sampling=Sampling(options.temperature, top_p=options.top_p, seed=options.seed),
        on_token=pace.token,
    )
    waiting = deque(requests)
    for replies in writer.run(waiting):
        finished = []
        for dialogue in map(answering.take, replies):
            following = answering.ask(dialogue) if dialogue.questions else None
            if following:
                waiting.appendleft(following)
            else:
                # A later question that cannot be asked leaves the answers before it.
                dialogue.dropped = "" if dialogue.messages else dialogue.dropped
                finished.append(dialogue.entry())
        journal.append(finished)
        outcomes.update(entry.get("dropped", "kept") for entry in finished)
        pace.finished(len(finished), outcome=counts_in_words(outcomes))


def counts_in_words(outcomes: Counter[str]) -> str:
    """Return `12 kept, 1 looping`."""
    return ", ".join(f"{count} {name}" for name, count in outcomes.most_common())


def thinking_of(options: argparse.Namespace) -> bool | None:
    """Return what `--thinking` means to a chat template."""
    return {"on": True, "off": False}.get(options.thinking)


def conversation_line(row: dict[str, Any], entry: dict[str, Any], *, thinking: bool | None) -> str:
    """Return the output line of an answered row.

    Args:
        row: As it was read.
        entry: From the journal.
        thinking: Noted in the line, for training to render it in the same way.
    """
    kept = {name: value for name, value in row.items() if name != "conversations"}
    kept |= {"messages": entry["messages"], "finish_reason": entry["finish_reason"]}
    if thinking is not None:
        kept["thinking"] = thinking
    return json.dumps(kept, ensure_ascii=False) + "\n"


def journal_of(out: Path) -> Path:
    """Return where the journal of an output lies.

    Raises:
        ConfigError: The output is there and has none, so that it is not of this command.
    """
    path = out.with_name(f"{out.stem}.journal.jsonl")
    if out.exists() and not path.exists():
        raise ConfigError([f"--out {out}: exists already, without {path.name}; name a new file"])
    return path


def regenerate(options: argparse.Namespace, target: Target | None = None) -> Counter[str]:
    """Answer every row of the prompts file, and write the conversations in its order.

    Args:
        options: Of the command.
        target: Writes the answers; None loads the one that the options name, once it is needed.

    Returns:
        Rows by what became of them; `kept` is one of the keys.

    Raises:
        ConfigError: An option, a row or the target cannot be used.
    """
    check_target_path(options.target)
    dialogues = {one.key: one for one in map(Dialogue.of, read_rows(str(options.prompts)))}
    settings = {name: getattr(options, name) for name in JOURNAL_SETTINGS}
    with Journal(journal_of(options.out), settings) as journal:
        done = {entry["key"] for entry in journal.entries}
        pending = [one for one in dialogues.values() if one.key not in done]
        if pending:
            target = target or load_writer(options)
            answer_all(target, pending, journal=journal, options=options)
        entries = {entry["key"]: entry for entry in journal.entries}
    lines = [
        conversation_line(dialogue.row, entries[key], thinking=thinking_of(options))
        for key, dialogue in dialogues.items()
        if "dropped" not in entries[key]
    ]
    write_whole(options.out, "".join(lines))
    outcomes = Counter(entries[key].get("dropped", "kept") for key in dialogues)
    sys.stderr.write(f"{options.out}: {counts_in_words(outcomes)}\n")
    if lines and all(entry.get("finish_reason") != "stop" for entry in entries.values()):
        sys.stderr.write("no answer ended its turn: look at --eos-token-id, --max-new-tokens\n")
    return outcomes
