"""What a probe looks at."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envdoctor.facts import Fact, PolicyFact
from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


THIS_MACHINE = Path("/")
"""Root of the machine that envdoctor runs on; any other root is a mounted one."""


@keyword_value
class Probing:
    """Leave to run programs in the inspected interpreter.

    Args:
        timeout_seconds: How long each may run; None for what each is known to need.
        kinds: Facts of which programs may be run; None for those of every program but the ones that
            provoke a failure on purpose.
        tell: Takes each step of a program as it begins; None if nobody watches.
    """

    timeout_seconds: float | None = None
    kinds: frozenset[type[Fact]] | None = None
    tell: Callable[[str], None] | None = None

    def covers(self, kind: type[Fact]) -> bool:
        """Tell whether the programs that read a fact may be run."""
        return self.kinds is None or kind in self.kinds


@keyword_value
class NamedRun:
    """A run file that is judged with the environment.

    Args:
        path: The file.
        config: The trainer's `TrainConfig`.
    """

    path: Path
    config: Any


@keyword_value
class Subject:
    """One environment on one machine.

    Args:
        prefix: The environment's folder.
        root: Where the machine's files are; `/` unless a mounted root is inspected.
        variables: Environment variables of the process whose environment is judged.
        policy: What the environment is wanted for.
        all_records: True to compare the files of every distribution, not only of those that matter.
        deep: True to hash every recorded file.
        progress: Told bytes hashed and bytes in all, now and then.
        logs: Logs of earlier runs, to look for known failures in.
        probing: Leave to run programs in the environment; None to run nothing of it.
        run: What the trainer is to run in it; None if nobody said.
    """

    prefix: Path
    root: Path = THIS_MACHINE
    variables: Mapping[str, str] = field(default_factory=dict)
    policy: PolicyFact = field(default_factory=PolicyFact)
    all_records: bool = False
    deep: bool = False
    logs: tuple[Path, ...] = ()
    progress: Callable[[int, int], None] | None = None
    probing: Probing | None = None
    run: NamedRun | None = None

    @property
    def is_this_machine(self) -> bool:
        """True unless a mounted root is inspected, of which only files can be read."""
        return self.root == THIS_MACHINE

    def locate(self, path: str | Path) -> Path:
        """Return where a path of the inspected machine lies: below its root.

        A path that lies there or in the environment already stays as it is.
        """
        path = Path(path)
        if self.is_this_machine or any(map(path.is_relative_to, (self.root, self.prefix))):
            return path
        return self.root / path.relative_to(path.anchor)

    def shown(self, path: str | Path) -> str:
        """Return a path as users of the inspected machine know it: without its root."""
        path = Path(path)
        if self.is_this_machine or not path.is_relative_to(self.root):
            return str(path)
        return f"/{path.relative_to(self.root)}"
