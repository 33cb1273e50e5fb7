"""What the steps of one build share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from envdoctor import shell
from envdoctor.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from envdoctor.interpreter import Interpreter
    from envdoctor.shell import Completed, Watch
    from envdoctor.talk import Stages
    from envdoctor.uv import Uv
    from envdoctor.wheelhouse import Wheelhouse


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Tools and places of one build.

    Args:
        uv: The binary.
        interpreter: The Python to build on.
        variables: Environment variables for every process that the build starts.
        staged: Folder of this build.
        wheelhouse: Where wheels are kept.
        log: Takes command lines and output.
        stages: Tells and times the steps.
    """

    uv: Uv
    interpreter: Interpreter
    variables: Mapping[str, str]
    staged: Path
    wheelhouse: Wheelhouse
    log: IO[str]
    stages: Stages

    def run_uv(
        self,
        arguments: Sequence[str],
        *,
        timeout: float,
        watch: Watch | None = None,
    ) -> Completed:
        """Run uv.

        Args:
            arguments: All but the program.
            timeout: Seconds.
            watch: Told how it gets on.

        Raises:
            SourceError: It did not end in time; it waits for nothing but sources.
        """
        try:
            return self.run([str(self.uv.path), *arguments], timeout=timeout, watch=watch)
        except TimeoutError as error:
            raise SourceError(f"{error}", reference="source-too-slow") from error

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        watch: Watch | None = None,
    ) -> Completed:
        """Run a program with the build's variables, in its folder."""
        return shell.run(
            argv,
            env=self.variables,
            timeout=timeout,
            cwd=self.staged,
            log=self.log,
            watch=watch,
        )
