"""Read what ties a virtual environment to its Python: pyvenv.cfg, links, first lines of scripts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.facts import CondaFact, FactSet, InterpreterFact, Launcher, OpenMpFact, VenvFact
from envdoctor.probes.files import list_folder, read_head
from envdoctor.probes.interpreter import venv_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.subject import Subject

LAUNCHERS = ("python", "python3", "pip", "pip3", "torchrun", "accelerate", "deepspeed")
"""Commands that people start training or installs with."""

_MAX_SCRIPTS = 300
_MAX_LINKS = 40
_HEAD = 512
# The first form is what installers write where the path is too long for the kernel.
_SHEBANG = re.compile(rb"#!/bin/sh\n'''exec' \"?(/[^\"\n]+?)\"? \"\$0\"|#! *([^\s]+)")
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?t?$")
_OPENMP = re.compile(r"lib(gomp|iomp5|omp)\b.*\.so")
_CONDA_RECORD = re.compile(r"(.+)-([^-]+)-[^-]+\.json")


def read_venv(subject: Subject, facts: FactSet) -> VenvFact:
    """Read a virtual environment's ties to its Python."""
    settings = venv_settings(subject.prefix)
    on_path = tuple(_on_path(subject))
    if not settings:
        return VenvFact(home=None, on_path=on_path)
    link = subject.prefix / "bin/python"
    python = _follow(subject, link) if os.path.lexists(link) else None
    launchers = list(_launchers(subject))
    minor = re.search(r"python(\d+\.\d+)", python.name) if python else None
    return VenvFact(
        home=settings.get("home", ""),
        python=str(python) if python else None,
        python_exists=python is not None and python.exists(),
        version=facts.need(InterpreterFact).version,
        found_version=minor[1] if minor else "",
        num_launchers=len(launchers),
        foreign_launchers=tuple(item for item in launchers if _is_foreign(subject, item)),
        on_path=on_path,
    )


def _follow(subject: Subject, path: Path) -> Path:
    """Follow symbolic links below the subject's root to the last one's target, there or not."""
    for _ in range(_MAX_LINKS):
        try:
            target = Path(os.readlink(path))  # noqa: PTH115  same as Path.readlink, and cheaper
        except OSError:
            break
        path = subject.locate(target) if target.is_absolute() else path.parent / target
    return path


def _launchers(subject: Subject) -> Iterator[Launcher]:
    folder = subject.prefix / "bin"
    for name in list_folder(folder)[:_MAX_SCRIPTS]:
        if not _PYTHON.match(name) and (launcher := read_launcher(subject, folder / name)):
            yield launcher


def read_launcher(subject: Subject, path: Path) -> Launcher | None:
    """Return a script with the Python that its first lines name; None if it names none.

    Source: pip's and uv's script templates, read 2026-11-29.
    """
    match = _SHEBANG.match(read_head(path, _HEAD))
    raw = (match[1] or match[2]) if match else b""
    interpreter = os.fsdecode(raw)
    if not interpreter.startswith("/") or not _PYTHON.match(interpreter.rpartition("/")[2]):
        return None
    return Launcher(
        path=str(path), interpreter=interpreter, exists=subject.locate(interpreter).exists()
    )


def _is_foreign(subject: Subject, launcher: Launcher) -> bool:
    folder = subject.locate(launcher.interpreter).parent
    own = subject.prefix / "bin"
    return folder != own and os.path.realpath(folder) != os.path.realpath(own)


def _on_path(subject: Subject) -> Iterator[Launcher]:
    """Yield the commands that PATH finds elsewhere, though this environment is the active one."""
    active = subject.variables.get("VIRTUAL_ENV")
    if not active or os.path.realpath(subject.locate(active)) != os.path.realpath(subject.prefix):
        return
    folders = [path for path in subject.variables.get("PATH", "").split(":") if path]
    for name in LAUNCHERS:
        places = (subject.locate(folder) / name for folder in folders)
        path = next((place for place in places if os.access(place, os.X_OK)), None)
        if path is None:
            continue
        launcher = read_launcher(subject, path)
        if launcher is None and _PYTHON.match(name):
            launcher = Launcher(path=str(path), interpreter=str(path), exists=True)
        if launcher and _is_foreign(subject, launcher):
            yield launcher


def read_openmp(subject: Subject, facts: FactSet) -> OpenMpFact:
    """Find OpenMP runtimes where wheels and conda put them."""
    folders = [subject.prefix / "lib"]
    for site in facts.need(InterpreterFact).site_packages:
        folders.append(Path(site) / "torch/lib")
        folders += [Path(site) / name for name in list_folder(site) if name.endswith(".libs")]
    found = (folder / name for folder in folders for name in list_folder(folder))
    return OpenMpFact(libraries=tuple(str(path) for path in found if _OPENMP.match(path.name)))


def read_conda(subject: Subject, facts: FactSet) -> CondaFact:
    """Read from file names which packages around torch conda recorded."""
    prefixes = {str(subject.prefix), facts.need(InterpreterFact).prefix}
    names = (name for prefix in prefixes for name in list_folder(f"{prefix}/conda-meta"))
    records = (_CONDA_RECORD.match(name) for name in names)
    return CondaFact(
        packages=tuple(
            (match[1], match[2]) for match in records if match and is_torch_package(match[1])
        )
    )


def is_torch_package(name: str) -> bool:
    """Tell whether a conda package is torch or carries it."""
    return name in {"libtorch", "pytorch", "pytorch-gpu", "pytorch-cpu", "triton", "pytorch-cuda"}
