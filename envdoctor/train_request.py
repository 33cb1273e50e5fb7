"""What to run of the trainer, and whether any environment could run it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envdoctor import user_files
from envdoctor.errors import UsageError, UserFileError
from envdoctor.facts import FactSet
from envdoctor.probes.interpreter import read_interpreter
from envdoctor.probes.subject import Subject
from envdoctor.probes.torch_build import read_torch_build
from envdoctor.resources import trainer_module

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """What to run of the trainer, and where.

    Args:
        config: The run file; None goes on with `resume`, or runs `command`.
        resume: Folder of a run to go on with; None begins one.
        changes: `KEY=VALUE` each, laid over the settings of the run.
        command: A sub-command of the trainer with its arguments; empty trains.
        out: Folder of the run; None for the trainer's default.
        env: An existing environment; None for one that envdoctor built.
        profile: Profile of the environment, by name or path; None for the newest built, or to hold
            `env` against no profile.
        extra: Further arguments for a training.
    """

    config: Path | None = None
    resume: Path | None = None
    changes: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    out: Path | None = None
    env: Path | None = None
    profile: str | None = None
    extra: tuple[str, ...] = ()


def require_valid(request: TrainRequest) -> None:
    """Refuse, before an environment is looked at, what the trainer could not run in any.

    Raises:
        UsageError: Neither a run nor a sub-command that exists is given, or both are.
        UserFileError: The run file or the folder of the run is not valid.
    """
    if not request.command:
        if request.config is None and request.resume is None:
            raise UsageError(
                "wanted --config FILE, --resume RUN or a sub-command", reference="nothing-to-run"
            )
        require_run(request)
        return
    name = request.command[0]
    known = trainer_module("commands").COMMANDS
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise UsageError(
            f"the trainer has no sub-command {name!r}",
            reference="no-such-command",
            hint=f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}",
        )
    if request.config or request.out or request.resume or request.changes:
        raise UsageError(
            f"--config, --set, --out and --resume before {name} are those of a training",
            reference="misplaced-option",
            hint=f"arguments of {name} stand behind it",
        )
    given = {argument.partition("=")[0] for argument in request.command}
    if misplaced := sorted({"--env", "--profile"} & given):
        raise UsageError(
            f"{misplaced[0]} stands before the sub-command",
            reference="misplaced-option",
            hint=f"envdoctor train {misplaced[0]} ... {name} ...",
        )


def require_run(request: TrainRequest) -> None:
    """Validate what a training starts from with the trainer's own rules, which need no torch.

    Raises:
        UserFileError: It is not valid, or names a file that is missing; one line for each problem.
    """
    if request.config:
        user_files.require(request.config, reference="run-file-not-valid")
    rules = trainer_module("config")
    try:
        if request.resume:
            trainer_module("run_folder").RunFolder.existing(request.resume)
        rules.check_inputs(configuration(request))
    except rules.ConfigError as error:
        raise UserFileError(str(error), reference="run-file-not-valid") from error


def configuration(request: TrainRequest) -> Any:
    """Return the settings of a training, as `train.config` reads them.

    Raises:
        train.settings.ConfigError: They are not valid.
    """
    rules = trainer_module("config")
    if request.config:
        return rules.load_config(request.config, settings=request.changes)
    folder = trainer_module("run_folder").RunFolder(request.resume)
    return rules.changed(folder.resolved_config(), path=folder.config, settings=request.changes)


def require_layout(request: TrainRequest, env: Path) -> None:
    """Refuse a layout that the environment's torch cannot run, or not safely.

    Args:
        request: A training, which is valid.
        env: The environment that is to run it.

    Raises:
        UserFileError: It is refused, with the reason in one line.
    """
    rules = trainer_module("config")
    layout = configuration(request).layout
    if layout.mode == "inline":
        return
    subject = Subject(prefix=env)
    build = read_torch_build(subject, FactSet([read_interpreter(subject, FactSet([]))]))
    try:
        rules.check_layout(layout, torch_version=build.version or "")
    except rules.ConfigError as error:
        source = request.config or request.resume
        raise UserFileError(f"{source}: {error}", reference="layout-refused") from error
