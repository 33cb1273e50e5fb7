"""Build the prompts of the embedded default from data that packages ship.

`train.commands.prompts` is the command. What a training reads is committed already.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import itertools
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from train.near_duplicates import normalised
from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Split = Literal["train", "held-out"]

HUMAN_EVAL_MAX_CHARS = 450
HUMAN_EVAL_HELD_OUT = 8
CHATTERBOT_FILES = ("ai", "computers", "food", "history", "literature", "science", "trivia")
CHATTERBOT_PER_FILE = 12
CHATTERBOT_HELD_OUT = 6
CHATTERBOT_MIN_CHARS = 20


@dataclass(frozen=True)
class Prompt:
    """One user message, with where it came from.

    Args:
        id: Stable and unique; the answers file keeps it, so that generating can be resumed.
        split: The file it goes to.
        source: Package name, or `envdoctor` when written for this project.
        text: The message.
    """

    id: str
    split: Split
    source: str
    text: str

    def to_json(self) -> str:
        """Return the line of the prompts file."""
        messages = [{"role": "user", "content": self.text}]
        return json.dumps({"id": self.id, "source": self.source, "messages": messages})


def written_prompts(topics_path: Path) -> Iterator[Prompt]:
    """Yield each template of each table filled with each of its items."""
    for kind, table in tomllib.loads(topics_path.read_text("utf-8")).items():
        for index, item in enumerate(table["items"]):
            held_out = index < table["held_out"]
            # One template for a held-out item: its prompts shall not differ by the wording alone.
            templates = [table["templates"][index % len(table["templates"])]]
            for number, template in enumerate(templates if held_out else table["templates"]):
                yield Prompt(
                    id=f"{kind}-{index:03d}-{number}",
                    split="held-out" if held_out else "train",
                    source="envdoctor",
                    text=template.format(item),
                )


def human_eval_prompts(package: Path) -> Iterator[Prompt]:
    """Yield the shorter problems of human-eval as completion tasks."""
    with gzip.open(package / "data" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as lines:
        problems = [json.loads(line) for line in lines]
    short = [row for row in problems if len(row["prompt"]) <= HUMAN_EVAL_MAX_CHARS]
    for index, row in enumerate(short):
        yield Prompt(
            id=row["task_id"],
            split="held-out" if index < HUMAN_EVAL_HELD_OUT else "train",
            source="human-eval",
            text=f"Complete this Python function:\n\n{row['prompt'].strip()}",
        )


def chatterbot_prompts(package: Path) -> Iterator[Prompt]:
    """Yield the opening questions of the English dialogues of chatterbot-corpus.

    The files are YAML; an opening line is `- - text`, so no YAML reader is needed.
    """
    index = 0
    for name in CHATTERBOT_FILES:
        text = (package / "data" / "english" / f"{name}.yml").read_text("utf-8")
        openings = [line.strip(" '\"") for line in re.findall(r"^- - (.+)$", text, re.MULTILINE)]
        questions = [
            line for line in openings if line.endswith("?") and len(line) >= CHATTERBOT_MIN_CHARS
        ]
        for question in sorted(set(questions))[:CHATTERBOT_PER_FILE]:
            yield Prompt(
                id=f"chatterbot-{name}-{index:03d}",
                # Every ninth, so that each file gives some.
                split="held-out" if index % 9 == 0 and index < 9 * CHATTERBOT_HELD_OUT else "train",
                source="chatterbot-corpus",
                text=question,
            )
            index += 1


def without_duplicates(prompts: Iterable[Prompt]) -> list[Prompt]:
    """Return the prompts with repeats dropped; a held-out prompt wins over a training one."""
    ordered = sorted(prompts, key=lambda prompt: prompt.split != "held-out")
    first: dict[str, Prompt] = {}
    for prompt in ordered:
        first.setdefault(normalised(prompt.text), prompt)
    return list(first.values())


def package_folder(name: str) -> Path:
    """Return where an installed package lies, without importing it.

    Raises:
        ConfigError: It is not installed; the message names the package to install.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError([f"package {name!r} is not installed here: pip install --no-deps {name}"])
    return Path(spec.submodule_search_locations[0])


def write_prompts(out: Path) -> None:
    """Write both prompts files into a folder.

    Raises:
        ConfigError: A package whose data is read is not installed.
    """
    topics = Path(__file__).parent / "data" / "topics.toml"
    prompts = without_duplicates(
        itertools.chain(
            written_prompts(topics),
            human_eval_prompts(package_folder("human_eval")),
            chatterbot_prompts(package_folder("chatterbot_corpus")),
        )
    )
    out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "held-out"):
        chosen = [prompt for prompt in prompts if prompt.split == split]
        # All kinds of prompts from the first row on, in an order that is the same everywhere.
        chosen.sort(key=lambda prompt: hashlib.sha256(prompt.id.encode()).digest())
        lines = [prompt.to_json() for prompt in chosen]
        (out / f"{split}.prompts.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        sys.stderr.write(f"{split}: {len(lines)} prompts\n")
