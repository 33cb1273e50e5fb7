"""Checks of what ties a virtual environment to its Python."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from envdoctor.check import check
from envdoctor.facts import (
    DistributionsFact,
    InterpreterFact,
    Launcher,
    VariablesFact,
    VenvFact,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

_SHOWN = 5
_COMMAND_OWNERS = {"torchrun": "torch", "accelerate": "accelerate", "deepspeed": "deepspeed"}
_MODULES = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch"}
_REBUILD = ("envdoctor build --profile cu128",)


@check()
def venv_python_gone(venv: VenvFact) -> Verdict:
    """The Python that a virtual environment was made from is gone.

    ## What it checks
    What `bin/python` leads to exists.

    ## Why it matters
    A virtual environment borrows its interpreter: with that uninstalled, upgraded or not mounted,
    nothing in the environment starts, whatever is installed in it.

    ## Remedy
    Make the environment anew; or bring the Python back to where `pyvenv.cfg` says it was.

    ## Source
    Python documentation of `venv`; PEP 405.
    """
    if venv.home is None:
        return Skipped("no virtual environment")
    if venv.python_exists:
        return Ok(f"bin/python leads to {venv.python}")
    found = f"a link to {venv.python}" if venv.python else "missing"
    return Problem(
        culprit=venv.python or "bin/python",
        message=f"the environment's Python is gone: bin/python is {found}, which is not there"
        if venv.python
        else "the environment has no bin/python",
        evidence=(
            Evidence(subject="bin/python", expected=f"a Python in {venv.home}", found=found),
        ),
        remedy=Remedy(
            kind="recreate-venv",
            text="Make the environment anew, or bring that Python back.",
            commands=_REBUILD,
        ),
    )


@check(requires=["venv-python-gone"])
def venv_python_changed(venv: VenvFact) -> Verdict:
    """A virtual environment's Python is now of another version.

    ## What it checks
    The version in `pyvenv.cfg` against the name of the interpreter that `bin/python` leads to.

    ## Why it matters
    Packages lie in `lib/pythonX.Y`: an interpreter of another minor version looks into another
    folder and finds none of them, and their compiled modules would not load.

    ## Remedy
    Make the environment anew for the Python that is wanted.

    ## Source
    Python documentation of `venv`; PEP 405.
    """
    made_for = ".".join(venv.version.split(".")[:2])
    if venv.home is None or not venv.found_version or not made_for:
        return Skipped("no virtual environment, or its Python's name states no version")
    if venv.found_version == made_for:
        return Ok(f"bin/python is Python {made_for}")
    return Problem(
        culprit=venv.python or "bin/python",
        message=f"the environment was made for Python {made_for}; bin/python is now "
        f"Python {venv.found_version}, which does not look into its packages",
        evidence=(Evidence(subject="bin/python", expected=made_for, found=str(venv.python)),),
        remedy=Remedy(kind="recreate-venv", text="Make the environment anew.", commands=_REBUILD),
    )


@check()
def scripts_start_another_python(venv: VenvFact, interpreter: InterpreterFact) -> Verdict:
    """Scripts of this environment start a Python of another place.

    ## What it checks
    The first lines of the scripts in `bin` (pip, torchrun and others): they name this environment's
    interpreter.

    ## Why it matters
    Scripts hold the path of their Python: in an environment that was moved or copied, `pip`
    installs into the old place, or nothing starts with "bad interpreter".

    ## Remedy
    Call modules instead (`python -m pip`, `python -m torch.distributed.run`), or make the
    environment anew where it lies now.

    ## Source
    Python documentation of `venv`: environments are not portable.
    """
    if venv.home is None:
        return Skipped("no virtual environment")
    foreign = venv.foreign_launchers
    if not foreign:
        return Ok(f"{venv.num_launchers} scripts start this environment's Python")
    gone = [item for item in foreign if not item.exists]
    shown = (gone or list(foreign))[0]
    moved = 2 * len(foreign) > venv.num_launchers
    names = ", ".join(PurePath(item.path).name for item in foreign[:_SHOWN])
    tail = ", which is not there" if gone else ""
    return Problem(
        culprit=shown.path,
        severity=Severity.WARNING if gone and moved else Severity.INFO,
        message=f"{len(foreign)} of {venv.num_launchers} scripts ({names}) start "
        f"{shown.interpreter}{tail}"
        + (f": the environment was moved or copied to {interpreter.prefix}" if moved else ""),
        evidence=tuple(
            Evidence(
                subject=item.path,
                expected=f"{interpreter.prefix}/bin/python",
                found=item.interpreter,
            )
            for item in foreign[:_SHOWN]
        ),
        remedy=Remedy(
            kind="recreate-venv",
            text="Call modules with `python -m`, or make the environment anew where it lies now.",
        ),
    )


@check()
def launcher_of_another_python(
    venv: VenvFact, interpreter: InterpreterFact, installed: DistributionsFact
) -> Verdict:
    """A command on PATH starts another Python than the active environment's.

    ## What it checks
    With this environment active (VIRTUAL_ENV): whether python, pip, torchrun, accelerate and
    deepspeed are found on PATH in another place and start another interpreter.

    ## Why it matters
    `torchrun` left in ~/.local/bin by an older installation runs the job with the system's Python
    and its packages; the active environment is never used.

    ## Remedy
    Use the environment's own launcher: `python -m torch.distributed.run`, or its path.

    ## Source
    pytorch/pytorch#92132; KempnerInstitute/KempnerForge#68.
    """
    relevant = [item for item in venv.on_path if _is_ours(PurePath(item.path).name, installed)]
    if not relevant:
        return Ok("no launcher of another Python is in the way")
    first = next((item for item in relevant if "torchrun" in item.path), relevant[0])
    name = PurePath(first.path).name
    return Problem(
        culprit=first.path,
        message=f"{name} on PATH is {first.path}, which starts {first.interpreter}, "
        f"not the active environment {interpreter.prefix}",
        evidence=tuple(
            Evidence(
                subject=item.path,
                expected=f"{interpreter.prefix}/bin/python",
                found=item.interpreter,
            )
            for item in relevant
        ),
        remedy=_own_launcher(first, interpreter),
    )


def _is_ours(command: str, installed: DistributionsFact) -> bool:
    """Tell whether a command belongs to the environment: Python always, others if installed."""
    if command.startswith("python"):
        return True
    owner = "pip" if command.startswith("pip") else _COMMAND_OWNERS.get(command, command)
    return installed.find(owner) is not None


def _own_launcher(launcher: Launcher, interpreter: InterpreterFact) -> Remedy:
    module = _MODULES.get(PurePath(launcher.path).name)
    instead = f"`python -m {module}`" if module else "its own Python"
    return Remedy(
        kind="use-venv-launcher",
        text=f"Start the environment's own: {instead} in place of {launcher.path}; or put "
        f"{interpreter.prefix}/bin first on PATH.",
        commands=(f'export PATH={shlex.quote(interpreter.prefix)}/bin:"$PATH"',),
    )


@check()
def python_home_set(
    venv: VenvFact, variables: VariablesFact, interpreter: InterpreterFact
) -> Verdict:
    """PYTHONHOME leads Python away from this environment.

    ## What it checks
    PYTHONHOME is unset, or names the Python that the environment was made from.

    ## Why it matters
    It overrides where the interpreter looks for its library and packages: a virtual environment is
    then ignored, or Python does not start at all ("No module named 'encodings'").

    ## Remedy
    Unset it.

    ## Source
    Python documentation, command line and environment.
    """
    home = variables.get("PYTHONHOME")
    if not home or venv.home is None:
        return Ok("PYTHONHOME is not set for a virtual environment")
    return Problem(
        culprit="PYTHONHOME",
        message=f"PYTHONHOME={home} keeps Python from the packages in {interpreter.prefix}",
        evidence=(Evidence(subject="PYTHONHOME", expected="unset", found=home),),
        remedy=Remedy(kind="unset-env", text="Unset it.", commands=("unset PYTHONHOME",)),
    )
