"""The Python that an environment is built on."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags

from envdoctor import shell
from envdoctor.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_SECONDS = 30
_ASK = """
import json, os, platform, sys, sysconfig
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps({
    "path": os.path.realpath(base),
    "version": ".".join(map(str, sys.version_info[:3])),
    "build": sys.version,
    "implementation": platform.python_implementation(),
    "machine": platform.machine(),
    "is_free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}))
"""


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A Python that said what it is.

    Args:
        path: The base interpreter, without symbolic links: no environment's.
        version: Such as `3.11.7`.
        build: All of `sys.version`.
        implementation: `CPython`.
        machine: As `uname -m` spells it.
        is_free_threaded: True for builds without the global lock.
    """

    path: str
    version: str
    build: str
    implementation: str
    machine: str
    is_free_threaded: bool

    def tags(self) -> dict[Tag, int]:
        """Return the wheel tags that it takes, each with its rank; 0 is best."""
        major, minor = (int(part) for part in self.version.split(".")[:2])
        suffix = "t" if self.is_free_threaded else ""
        platforms = list(platform_tags())
        tags = [
            *cpython_tags((major, minor), abis=[f"cp{major}{minor}{suffix}"], platforms=platforms),
            *compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=platforms),
        ]
        return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def choose(wanted: str | None, *, requires: str, variables: Mapping[str, str]) -> Interpreter:
    """Find the Python to build on.

    Args:
        wanted: Path, or a command or version such as `python3.12` or `3.12` to find on PATH; None
            for the one that runs envdoctor.
        requires: Version specifier of the profile.
        variables: Environment variables, for PATH.

    Raises:
        ToolError: There is none, it does not run, or it is unsuitable; the hint names others.
    """
    found = _ask(_locate(wanted, variables), variables)
    reason = _unsuitable(found, requires)
    if reason:
        raise ToolError(
            f"{found.path} is {found.implementation} {found.version}, wanted {reason}",
            reference="python-unsuitable",
            hint="give another with --python PATH",
        )
    return found


def _unsuitable(found: Interpreter, requires: str) -> str:
    if found.implementation != "CPython":
        return "CPython: torch has wheels for no other"
    if not SpecifierSet(requires).contains(found.version, prereleases=True):
        return requires
    return ""


def _locate(wanted: str | None, variables: Mapping[str, str]) -> Path:
    if not wanted:
        return Path(sys.executable)
    if "/" in wanted:
        path = Path(wanted).expanduser()
        places = [path / "bin/python", path / "bin/python3"] if path.is_dir() else [path]
        looked = " and ".join(str(place) for place in places)
    else:
        name = f"python{wanted}" if wanted[0].isdigit() else wanted
        places = [Path(shutil.which(name, path=variables.get("PATH")) or "/nowhere")]
        looked = f"PATH for {name}"
    chosen = next((place for place in places if place.is_file()), None)
    if chosen is None:
        raise ToolError(
            f"--python {wanted}: no such Python; looked in {looked}",
            reference="python-not-found",
            hint="envdoctor downloads no Python; give the path of an installed one",
        )
    return chosen.absolute()


def _ask(path: Path, variables: Mapping[str, str]) -> Interpreter:
    argv = [str(path), "-I", "-S", "-c", _ASK]
    try:
        done = shell.run(argv, env=variables, timeout=_TIMEOUT_SECONDS)
    except TimeoutError as error:
        raise ToolError(str(error), reference="python-does-not-run") from error
    try:
        return msgspec.convert(json.loads(done.stdout), Interpreter)
    except (ValueError, msgspec.MsgspecError) as error:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ToolError(
            f"{path} does not answer like a Python: {said[0] if said else 'it said nothing'}",
            reference="python-does-not-run",
            hint="give another with --python PATH",
        ) from error
