"""Simulate which libraries Python and `import torch` load, in their order."""

from __future__ import annotations

import re
from dataclasses import replace

from envdoctor.facts import FactSet, FoundLibrary, LoaderConfigFact, TorchBuildFact, VariablesFact
from envdoctor.probes.files import UnreadableError, read_text
from envdoctor.probes.linker import Linker, Mapped
from envdoctor.probes.torch_preload import find_preloaded, parse_preload

_SOURCE_LIMIT = 2 * 1024 * 1024
_GLOBAL_DEPS = "libtorch_global_deps.so"
_LATER = ("libtorch_python.so", "libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so")
"""Libraries of torch that are opened when they are used, besides its module `_C`."""


def start_python(linker: Linker, facts: FactSet) -> None:
    """Load what is there before torch: what is preloaded, and what the interpreter needs."""
    names = re.split("[ :]", facts.need(VariablesFact).get("LD_PRELOAD") or "")
    for name in filter(None, (*names, *facts.need(LoaderConfigFact).preloaded)):
        if (item := linker.open(name)) and name in names:
            _was_preloaded(item, "LD_PRELOAD")
        elif item:
            _was_preloaded(item, "/etc/ld.so.preload")
    if program := linker.path.program:
        linker.walk(Mapped(program, FoundLibrary(name="", path=program.path)))


def _was_preloaded(item: Mapped, source: str) -> None:
    item.found = replace(item.found, via="LD_PRELOAD", source=source)


def import_torch(linker: Linker, torch: TorchBuildFact, sites: tuple[str, ...]) -> None:
    """Load what `import torch` loads, what torch opens when it is used, and Triton.

    Args:
        linker: The process.
        torch: Where torch is.
        sites: Folders of packages in the order of `sys.path`.
    """
    folder = str(torch.path)
    _load_global_deps(linker, torch, sites)
    modules = [name for name in linker.files.names(folder) if name.startswith("_C.")]
    for name in sorted(modules):
        linker.open(f"{folder}/{name}", distribution="torch")
    for name in _LATER:
        linker.open(f"{folder}/lib/{name}", distribution="torch")
    triton = folder.rpartition("/")[0] + "/triton/_C/libtriton.so"
    linker.open(triton, distribution="triton")


def _load_global_deps(linker: Linker, torch: TorchBuildFact, sites: tuple[str, ...]) -> None:
    """Do what `torch._load_global_deps` does: open the library, and what torch preloads."""
    try:
        text = read_text(f"{torch.path}/__init__.py", limit=_SOURCE_LIMIT) or ""
    except UnreadableError:
        text = ""
    preload = parse_preload(text)
    path = f"{torch.path}/lib/{_GLOBAL_DEPS}"
    mark = linker.mark()
    linker.open(path, distribution="torch")
    missing = [name for item in linker.objects[mark:] for name, to in item.needs if to is None]
    names = [item.file.path for item in linker.objects]
    if missing:
        listed = [library.pattern.partition(".")[0] for library in preload.on_failure]
        if missing[0].partition(".")[0] not in listed:
            return
        linker.forget(mark)
        libraries = preload.on_failure
    elif all(any(guard in name for name in names) for guard in preload.guards):
        libraries = preload.always
    else:
        return
    major = (torch.cuda or "").partition(".")[0]
    for library in libraries:
        found = find_preloaded(library, linker.files, sites, major)
        if found:
            linker.open(found, distribution="torch")
        elif library.is_required:
            break  # torch gives up here, and goes on without the rest
    linker.open(path, distribution="torch")
