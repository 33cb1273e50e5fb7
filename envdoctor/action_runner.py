"""Start the programs of actions: uv from where envdoctor has it, with the sources pip knows."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor import pip_config, shell, uv, uv_failures
from envdoctor.errors import SourceError, ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from envdoctor.actions import Action
    from envdoctor.settings import Settings
    from envdoctor.talk import Stages

_TIMEOUT_SECONDS = 2 * 60 * 60.0
_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS")


class Runner:
    """Starts the programs of actions.

    Args:
        settings: Hold the variables of this process.
        stages: Told how they get on.
    """

    def __init__(self, settings: Settings, stages: Stages) -> None:
        self._settings = settings
        self._stages = stages
        self._uv: uv.Uv | None = None
        self._sources: list[str] = []

    def run(self, action: Action) -> None:
        """Run one action to its end.

        Raises:
            EnvdoctorError: It did not succeed.
        """
        if action.program == "uv":
            self._run_uv(action.arguments)
            return
        program = shutil.which(action.program)
        if program is None:
            raise ToolError(f"{action.program} is not on PATH", reference="program-not-found")
        done = self._start([program, *action.arguments])
        if done.returncode:
            raise ToolError(done.stderr.strip() or program, reference="command-failed")

    def _run_uv(self, arguments: Sequence[str]) -> None:
        if self._uv is None:
            self._uv = uv.find(None, self._settings)
            self._sources = source_options(self._settings.variables)
        # Where packages come from is of no matter to `pip uninstall`, which refuses such options.
        sources = self._sources if arguments[:2] == ("pip", "install") else []
        if "--index-url" in arguments:
            sources = []
        done = self._start([str(self._uv.path), *arguments, *sources])
        if done.returncode:
            raise uv_failures.meaning(done.stderr)

    def _start(self, argv: Sequence[str]) -> shell.Completed:
        variables = {**self._settings.variables, "UV_NO_PROGRESS": "1"}
        watch = _Watch(self._stages)
        try:
            return shell.run(argv, env=variables, timeout=_TIMEOUT_SECONDS, watch=watch)
        except TimeoutError as error:
            raise SourceError(str(error), reference="source-too-slow") from error


@dataclass(frozen=True, slots=True)
class _Watch:
    stages: Stages

    def line(self, text: str, /) -> None:
        self.stages.tool(text)

    def waiting(self, pid: int, /) -> None:
        del pid
        self.stages.tool("")


def source_options(variables: Mapping[str, str]) -> list[str]:
    """Return options that give uv the sources of pip, unless uv has sources of its own.

    uv reads none of pip's configuration, and a machine behind a mirror often has only that.
    """
    if any(name in variables for name in _INDEX_VARIABLES):
        return []
    pip = pip_config.read(variables)
    if pip is None:
        return []
    options = ["--no-index"] if pip.no_index else []
    options += ["--default-index", pip.index_url] if pip.index_url else []
    if pip.extra_index_urls:
        options += ["--index-strategy", "unsafe-best-match"]  # pip asks all of them as well
    for url in pip.extra_index_urls:
        options += ["--index", url]
    for place in pip.find_links:
        if "://" in place or Path(place).exists():
            options += ["--find-links", place]
    return options
