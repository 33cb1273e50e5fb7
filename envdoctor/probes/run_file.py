"""Read what a run file of the trainer asks of the environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envdoctor.facts import InterpreterFact, RunFact
from envdoctor.probes.files import UnreadableError, read_text
from envdoctor.probes.gguf import read_gguf_number

if TYPE_CHECKING:
    from envdoctor.facts import FactSet
    from envdoctor.probes.subject import Subject

_PACKAGE = "package:"


def read_run(subject: Subject, facts: FactSet) -> RunFact:
    """Read layout, device and attention's shape at the greatest length."""
    if subject.run is None:
        return RunFact()
    config, path = subject.run.config, subject.run.path
    num_queries = config.train.num_anchors * config.draft.block_size
    return RunFact(
        path=str(path),
        mode=config.layout.mode,
        device=config.train.device,
        attention=config.train.attention,
        num_rows=config.train.micro_batch,
        num_heads=_num_heads(config.target.path, facts),
        num_queries=num_queries,
        num_keys=config.data.buckets[-1] + num_queries,
    )


def _num_heads(target: str, facts: FactSet) -> int | None:
    """Return the query heads of a target that lies here; None of any other."""
    place = _place(target, facts)
    try:
        if place is None:
            return None
        if place.suffix == ".gguf":
            return read_gguf_number(place, ".attention.head_count")
        return heads_of(json.loads(read_text(place / "config.json") or "{}"))
    except (OSError, UnreadableError, ValueError, RecursionError):
        return None


def heads_of(config: Any) -> int | None:
    """Return the query heads that a `config.json` of transformers gives for text."""
    if not isinstance(config, dict):
        return None
    for part in (config, config.get("text_config")):
        found = part.get("num_attention_heads") if isinstance(part, dict) else None
        if type(found) is int and found > 0:  # a bool is an int, and no number of heads
            return found
    return None


def _place(target: str, facts: FactSet) -> Path | None:
    """Return where a target lies: its own path, or within an installed package."""
    if not target.startswith(_PACKAGE):
        path = Path(target).expanduser()
        return path if path.is_absolute() else None
    name = target.removeprefix(_PACKAGE)
    interpreter = facts.get(InterpreterFact)
    sites = interpreter.site_packages if isinstance(interpreter, InterpreterFact) else ()
    return next((found for site in sites if (found := Path(site) / name).is_file()), None)
