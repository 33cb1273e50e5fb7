"""Readings of what holds a virtual environment together: its Python, its scripts, its runtimes."""

from __future__ import annotations

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
class Launcher:
    """A script that starts Python.

    Args:
        path: The script.
        interpreter: The Python that its first lines name.
        exists: True if that Python is there.
    """

    path: str
    interpreter: str
    exists: bool


@keyword_value
class VenvFact(Fact):
    """A virtual environment against the Python it was made from.

    Args:
        home: Folder of that Python, from `pyvenv.cfg`; None if this is no virtual environment.
        python: What `bin/python` leads to; None if there is no `bin/python`.
        python_exists: True if that is there.
        version: Version that `pyvenv.cfg` states; empty if it does not.
        found_version: Minor version of the Python that is there now, such as `3.12`, from its
            file's name; empty if the name does not say.
        num_launchers: Scripts in `bin` that name a Python.
        foreign_launchers: Those of them that name a Python of another place.
        on_path: The first `python`, `pip`, `torchrun` and the like on PATH, where it is not this
            environment's; empty unless VIRTUAL_ENV says that this environment is the active one.
    """

    home: str | None
    python: str | None = None
    python_exists: bool = True
    version: str = ""
    found_version: str = ""
    num_launchers: int = 0
    foreign_launchers: tuple[Launcher, ...] = ()
    on_path: tuple[Launcher, ...] = ()


@keyword_value
class OpenMpFact(Fact):
    """OpenMP runtimes in an environment, by path: `libgomp`, `libiomp5`, `libomp`."""

    libraries: tuple[str, ...] = ()


@keyword_value
class CondaFact(Fact):
    """Packages that conda recorded in this environment and that bear on torch.

    Args:
        packages: Pairs of name and version, such as `pytorch` and `2.5.1`.
    """

    packages: tuple[tuple[str, str], ...] = ()
