"""Read what torch.compile starts: a C compiler, the Python headers, Triton's ptxas."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from envdoctor.facts import CompilerFact, FactSet, InterpreterFact, NvidiaFact, Ptxas, PtxasFact
from envdoctor.probes.files import describe_mode, is_folder, list_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.subject import Subject

_COMPILERS = ("gcc", "clang")
"""In the order in which Triton looks for them if CC is not set."""

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NEEDLE = b"Cuda compilation tools, release "
_RELEASE = re.compile(_NEEDLE + rb"(\d{1,3}\.\d{1,3}), V")
_LONGEST = 64
_BLOCK = 4 * 1024**2
_MAX_BLOCKS = 64
_BLACKWELL = 10
"""Major compute capability; the ptxas of every Triton since 3.0 knows those before."""

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
    majors = [int(gpu.capability.partition(".")[0]) for gpu in facts.need(NvidiaFact).gpus]
    sites = [Path(site) for site in facts.need(InterpreterFact).site_packages]
    if not majors:
        return PtxasFact()
    is_new = max(majors) >= _BLACKWELL
    names = ("ptxas", _FOR_BLACKWELL) if is_new else ("ptxas",)
    spare = _spare_ptxas(subject, sites) if is_new else ()
    return PtxasFact(
        tools=tuple(_ptxas(subject, sites, names)),
        spare=tuple(_read_tool(path, subject.shown(path)) for path in spare),
    )


def _ptxas(subject: Subject, sites: list[Path], names: tuple[str, ...]) -> Iterator[Ptxas]:
    for name in names:
        variable = f"TRITON_{name.upper().replace('-', '_')}_PATH"
        if named := subject.variables.get(variable):
            yield _read_tool(subject.locate(named), named, variable)
    for folder in (site / "triton/backends/nvidia/bin" for site in sites):
        if is_folder(folder):
            for name in names:
                path = folder / name
                if name == "ptxas" or path.exists():
                    yield _read_tool(path, str(path))
            return


def _spare_ptxas(subject: Subject, sites: list[Path]) -> Iterator[Path]:
    folders = [
        subject.root / "usr/local" / name for name in list_folder(subject.root / "usr/local")
    ]
    bases = [folder for folder in folders if folder.name.startswith("cuda")]
    bases += [site / "nvidia" / name for site in sites for name in list_folder(site / "nvidia")]
    bases += [site / "torch" for site in sites]
    found = (path for base in bases if (path := base / "bin/ptxas").is_file())
    # /usr/local/cuda is a link to one of its neighbours
    yield from {path.resolve(): path for path in found}.values()


def _read_tool(path: Path, shown: str, variable: str = "") -> Ptxas:
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
        release = _find_release(stream)
    if not status.st_size:
        return release, "an empty file"
    return release, "" if status.st_mode & 0o111 else "it may not be executed"


def _find_release(stream: BinaryIO) -> str:
    """Return the release that stands in a file; empty if none does. Memory stays bounded."""
    rest = b""
    for _ in range(_MAX_BLOCKS):
        block = stream.read(_BLOCK)
        if not block:
            break
        content = rest + block
        # A plain search takes a tenth of the time that the expression would.
        at = content.find(_NEEDLE)
        if at >= 0 and (match := _RELEASE.match(content, at)):
            return match[1].decode("ascii")
        rest = content[-_LONGEST:]
    return ""
