"""What a probe looks at."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from envdoctor.facts import PolicyFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One environment on one machine.

    Args:
        prefix: The environment's folder.
        root: Where the machine's files are; `/` unless a mounted root is inspected.
        policy: What the environment is wanted for.
        all_records: True to compare the files of every distribution, not only of those that matter.
    """

    prefix: Path
    root: Path = Path("/")
    policy: PolicyFact = field(default_factory=PolicyFact)
    all_records: bool = False
