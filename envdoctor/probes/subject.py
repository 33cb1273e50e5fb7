"""What a probe looks at."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.facts import PolicyFact

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One environment on one machine.

    Args:
        prefix: The environment's folder.
        root: Where the machine's files are; `/` unless a mounted root is inspected.
        variables: Environment variables of the process whose environment is judged.
        policy: What the environment is wanted for.
        all_records: True to compare the files of every distribution, not only of those that matter.
    """

    prefix: Path
    root: Path = Path("/")
    variables: Mapping[str, str] = field(default_factory=dict)
    policy: PolicyFact = field(default_factory=PolicyFact)
    all_records: bool = False
