"""Run a program in a built environment, which stays as it is until the program ends."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor import generations, launch, receipt, shell, store
from envdoctor.errors import UsageError
from envdoctor.talk import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from envdoctor.settings import Settings
    from envdoctor.store import Store
    from envdoctor.talk import Talk


def run(command: Sequence[str], *, profile: str | None, settings: Settings, talk: Talk) -> int:
    """Run a command in the current environment of a profile.

    The environment is held while the command runs: a build may make another one current, and this
    one is neither changed nor thrown away.

    Args:
        command: The program, looked for in the environment first, and its arguments.
        profile: As for `generations.place_of`.
        settings: Where environments lie, and the variables of this process.
        talk: Told which variables are not passed on.

    Returns:
        The command's exit code, or 128 plus the number of the signal that ended it.

    Raises:
        UsageError: There is no such program, or no such profile.
        VerificationError: Nothing is built.
    """
    place = generations.place_of(profile, settings)
    with _held(place) as (env, descriptor):
        found = receipt.read(place.receipt(env.name))
        wanted = found.wanted() if found else None
        kept, dropped = launch.inherited(settings.variables, wanted)
        if dropped:
            talk(Event(kind=EventKind.NOTE, text=f"not passed on: {', '.join(dropped)}"))
        variables = launch.variables_in(env, wanted, kept)
        program = _located(command[0], variables)
        return shell.supervise([program, *command[1:]], env=variables, keep=[descriptor])


@contextmanager
def _held(place: Store) -> Iterator[tuple[Path, int]]:
    """Hold the current generation; yield its real folder and the descriptor that holds it."""
    while True:
        name = generations.current_of(place)
        with store.lease(place, name) as descriptor:
            env = place.envs.resolve() / name
            # Between the look and the lease it may have become old and been thrown away.
            if env.is_dir():
                yield env, descriptor
                return


def _located(program: str, variables: Mapping[str, str]) -> str:
    found = shutil.which(program, path=variables["PATH"])
    if found is None:
        raise UsageError(
            f"{program}: no such program in {variables['VIRTUAL_ENV']}/bin, nor on PATH",
            reference="program-not-found",
        )
    return str(Path(found).absolute())
