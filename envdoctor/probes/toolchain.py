"""Read what torch.compile starts: a C compiler, the Python headers, Triton's ptxas."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.facts import CompilerFact, FactSet, InterpreterFact, NvidiaFact, Ptxas, PtxasFact
from envdoctor.probes.files import describe_mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.subject import Subject

_COMPILERS = ("gcc", "clang")
"""In the order in which Triton looks for them if CC is not set."""

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RELEASE = re.compile(rb"release (\d{1,3}\.\d{1,3}), V")
_RELEASE_NEEDLE = b"Cuda compilation tools, release "
_TOOL_LIMIT = 256 * 1024**2
_FOR_BLACKWELL = "ptxas-blackwell"


def read_compiler(subject: Subject, facts: FactSet) -> CompilerFact:
    """Find the compiler that Triton would take, and the interpreter's `Python.h`.

    Source: triton/runtime/build.py 3.5 to 3.9: CC, else gcc, else clang, on PATH.
    """
    wanted = subject.variables.get("CC", "")
    program = wanted.split()[0] if wanted.split() else ""
    names = (program,) if program else _COMPILERS
    found = next((path for name in names if (path := _which(subject, name))), None)
    include = _include_folder(subject, facts.need(InterpreterFact))
    return CompilerFact(
        path=found,
        wanted=program if program and not found else "",
        include=subject.shown(include) if include else None,
        has_python_h=(include / "Python.h").is_file() if include else None,
    )


def _which(subject: Subject, name: str) -> str | None:
    if os.sep in name:
        candidates = [name]
    else:
        folders = subject.variables.get("PATH") or _DEFAULT_PATH
        candidates = [f"{folder}/{name}" for folder in folders.split(":") if folder]
    for candidate in candidates:
        path = subject.locate(candidate)
        if path.is_file() and os.access(path, os.X_OK):
            return candidate
    return None


def _include_folder(subject: Subject, interpreter: InterpreterFact) -> Path | None:
    """Return the folder that sysconfig names for `Python.h`; None if the base is unknown."""
    if interpreter.python is None:
        return None
    base = subject.locate(interpreter.python).resolve().parent.parent
    minor = ".".join(interpreter.version.split(".")[:2])
    folders = [base / "include" / f"python{minor}{flag}" for flag in ("", "t")]
    if not any(map(Path.is_dir, folders)) and not (base / "lib").is_dir():
        return None
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def read_ptxas(subject: Subject, facts: FactSet) -> PtxasFact:
    """Find the ptxas files that Triton would start; without a GPU none is ever started.

    Source: triton/knobs.py 3.6: TRITON_PTXAS_PATH and TRITON_PTXAS_BLACKWELL_PATH, else the
    bundled files; a file that cannot be started is passed over.
    """
    if not facts.need(NvidiaFact).gpus:
        return PtxasFact()
    return PtxasFact(tools=tuple(_ptxas(subject, facts.need(InterpreterFact))))


def _ptxas(subject: Subject, interpreter: InterpreterFact) -> Iterator[Ptxas]:
    for name in ("ptxas", _FOR_BLACKWELL):
        variable = f"TRITON_{name.upper().replace('-', '_')}_PATH"
        if named := subject.variables.get(variable):
            yield _read_tool(subject.locate(named), named, variable)
    for site in interpreter.site_packages:
        folder = Path(site) / "triton/backends/nvidia/bin"
        if folder.is_dir():
            for name in ("ptxas", _FOR_BLACKWELL):
                path = folder / name
                if name == "ptxas" or path.exists():
                    yield _read_tool(path, str(path), "")
            return


def _read_tool(path: Path, shown: str, variable: str) -> Ptxas:
    release, error = _release(path)
    return Ptxas(
        path=shown,
        variable=variable,
        for_blackwell=path.name == _FOR_BLACKWELL or "BLACKWELL" in variable,
        release=release,
        error=error,
    )


def _release(path: Path) -> tuple[str, str]:
    """Return the CUDA release that a ptxas reports, read from its bytes, and why it cannot start.

    It is never started: the string that `--version` prints stands in the file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return "", error.strerror or str(error)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            return "", f"it is {describe_mode(status.st_mode)}"
        content = stream.read(_TOOL_LIMIT)
    at = content.find(_RELEASE_NEEDLE)
    match = _RELEASE.search(content[at : at + 64] if at >= 0 else b"")
    release = match[1].decode() if match else ""
    if not content:
        return release, "an empty file"
    return release, "" if status.st_mode & 0o111 else "it may not be executed"
