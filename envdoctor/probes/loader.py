"""Read what the dynamic linker would do for torch and for packages built against it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envdoctor.facts import (
    DistributionsFact,
    FactSet,
    FoundLibrary,
    HostFact,
    InterpreterFact,
    LoadedObject,
    LoaderCacheFact,
    LoaderConfigFact,
    LoaderFact,
    RecordsFact,
    TorchBuildFact,
    Unmet,
    VariablesFact,
)
from envdoctor.probes.compiled_modules import (
    TORCH_LIBRARIES,
    compiled_modules,
    is_built_against_torch,
    is_python_module,
    needs_little,
)
from envdoctor.probes.cudnn import open_parts
from envdoctor.probes.files import is_folder
from envdoctor.probes.ld_so import default_folders
from envdoctor.probes.library_files import LibraryFile, LibraryFiles
from envdoctor.probes.library_symbols import (
    TorchSymbols,
    shadows,
    unmet_by_shadow,
    unmet_versions,
)
from envdoctor.probes.linker import Hit, Linker, Mapped, SearchPath
from envdoctor.probes.torch_import import import_torch, start_python

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from envdoctor.probes.subject import Subject

_LIBSTDCXX = "libstdc++.so.6"
_NEW_RUNTIME = "GLIBCXX_3.4.28"
"""GCC 9's. No wheel for systems as old as glibc 2.28 needs a newer one."""

_DRIVER = "libcuda.so.1"
_RUNTIMES = ("libcudart.so.12", "libcudart.so.13")
"""What cudnn-frontend asks for. Source: its cudnn_frontend_shim.h, `load_cudart_so`, 1.19."""


def read_loader(subject: Subject, facts: FactSet) -> LoaderFact:
    """Simulate `import torch`, then what runs later, then the packages built against torch."""
    torch = facts.need(TorchBuildFact)
    if torch.path is None:
        return LoaderFact()
    files = LibraryFiles(subject, facts.need(HostFact).machine)
    sites = facts.need(InterpreterFact).site_packages
    shipped = tuple(_shipped(files, sites, torch.path))
    linker = Linker(files, _search_path(subject, facts, files))
    start_python(linker, facts)
    import_torch(linker, torch, sites)
    cudnn = open_parts(linker)
    unmet = [*_open_extensions(linker, facts), *_unmet_versions(linker)]
    shadowing = tuple(shadows(linker, dict(reversed(shipped)), sites))
    for shadow in shadowing:
        unmet += unmet_by_shadow(linker, files, shadow)
    conda = tuple(_conda_libstdcxx(files, facts, unmet))
    homes = dict.fromkeys(f"{prefix}/lib/{_LIBSTDCXX}" for prefix, _ in conda)
    return LoaderFact(
        objects=tuple(map(_as_fact, linker.objects)),
        shipped=shipped,
        shadows=shadowing,
        unmet=tuple(unmet),
        passed_over=tuple(files.passed_over),
        cudnn=cudnn,
        drivers=tuple(_drivers(linker)),
        runtimes=tuple(_runtimes(linker)),
        private_libstdcxx=tuple(_private_libstdcxx(files, facts, unmet)),
        conda_libstdcxx=tuple(name for _, name in conda),
        lost_libstdcxx=tuple(path for path in homes if files.at(path) is None),
    )


def _search_path(subject: Subject, facts: FactSet, files: LibraryFiles) -> SearchPath:
    interpreter = facts.need(InterpreterFact)
    program = files.program(interpreter.python) if interpreter.python else None
    # conda's interpreters find the libraries of their environment by an RPATH
    is_conda = is_folder(subject.locate(f"{interpreter.prefix}/conda-meta"))
    stand_in = (f"{interpreter.prefix}/lib",) if is_conda and program is None else ()
    library_path = facts.need(VariablesFact).get("LD_LIBRARY_PATH") or ""
    defaults = default_folders(facts.need(HostFact).machine)
    # a default folder is searched whether or not a file names it as well
    named = [pair for pair in facts.need(LoaderConfigFact).folders if pair[0] not in defaults]
    return SearchPath(
        library_path=tuple(filter(None, re.split("[:;]", library_path))),
        cache=dict(facts.need(LoaderCacheFact).entries),
        defaults=defaults,
        program=program,
        program_rpath=stand_in,
        named_by=dict(reversed(named)),
    )


def _shipped(files: LibraryFiles, sites: tuple[str, ...], torch: str) -> Iterator[tuple[str, str]]:
    """Yield name and path of the libraries that torch and NVIDIA's packages ship."""
    folders = [f"{torch}/lib"]
    for site in sites:
        parts = sorted(files.names(f"{site}/nvidia"))
        folders += [f"{site}/nvidia/{part}/lib" for part in parts if "." not in part]
    for folder in folders:
        for name in sorted(files.names(folder)):
            if name.startswith("lib") and ".so" in name:
                yield name, f"{folder}/{name}"


def _open_extensions(linker: Linker, facts: FactSet) -> Iterator[Unmet]:
    """Open every module built against torch; of others only hold the version nodes."""
    named = [item for item in linker.objects if item.found.name.startswith(TORCH_LIBRARIES)]
    torch = TorchSymbols([item.file for item in named])
    loaded = {item.file.path for item in linker.objects}
    runtime = linker.loaded(_LIBSTDCXX)
    defined = linker.files.versions(runtime.file).defined if runtime else ()
    is_new = _NEW_RUNTIME in defined
    installed, records = facts.need(DistributionsFact), facts.need(RecordsFact)
    for dist, file in compiled_modules(installed, records, linker.files):
        if file.path in loaded or file.header is None:
            continue
        if is_built_against_torch(file):
            mark = linker.mark()
            linker.open(file.path, distribution=dist.name)
            beside = [item.file for item in linker.objects[mark:]]
            if unmet := torch.unmet(file, dist.name, beside):
                yield unmet
        elif is_python_module(file) and not (is_new and needs_little(dist)):
            needed = linker.files.versions(file).needed
            providers = {name: _provider(linker, name, file) for name in needed}
            yield from unmet_versions(file, dist.name, providers, linker.files)


def _provider(linker: Linker, name: str, file: LibraryFile) -> LibraryFile | None:
    """Return what a module that is imported by itself would take for a library."""
    header = file.header
    loaded = linker.loaded(name)
    if loaded and header and not header.rpath and not header.runpath:
        return loaded.file
    asker = Mapped(file, FoundLibrary(name="", path=file.path))
    hit = next(linker.search(name, asker), None)
    if hit and hit[1] in ("RPATH", "RUNPATH"):
        return hit[0]
    return loaded.file if loaded else hit and hit[0]


def _unmet_versions(linker: Linker) -> Iterator[Unmet]:
    for item in linker.objects:
        providers = {name: target.file for name, target in item.needs if target}
        yield from unmet_versions(item.file, item.distribution, providers, linker.files)


def _drivers(linker: Linker) -> Iterator[FoundLibrary]:
    """Yield every driver library that a search by name passes, and those that it hides."""
    seen: set[tuple[int, int] | None] = set()
    if loaded := linker.loaded(_DRIVER):
        seen.add(loaded.file.header.identity if loaded.file.header else None)
        yield loaded.found
    hits = list(linker.search(_DRIVER, None))
    named: list[Hit] = [
        (file, "ld.so.cache", source)
        for folder, source in linker.path.named_by.items()
        if (file := linker.files.in_folder(folder, _DRIVER))
    ]
    first = [hit for hit in hits if hit[1] != "default"]
    last = [hit for hit in hits if hit[1] == "default"]
    for file, via, source in (*first, *named, *last):
        identity = file.header.identity if file.header else None
        if identity not in seen:
            seen.add(identity)
            yield FoundLibrary(
                name=_DRIVER, path=file.path, via=via, source=source, target=file.target
            )


def _runtimes(linker: Linker) -> Iterator[FoundLibrary]:
    for name in _RUNTIMES:
        if loaded := linker.loaded(name):
            yield loaded.found
        elif hit := next(linker.search(name, None), None):
            file, via, source = hit
            yield FoundLibrary(
                name=name, path=file.path, via=via, source=source, target=file.target
            )


def _private_libstdcxx(
    files: LibraryFiles, facts: FactSet, unmet: Sequence[Unmet]
) -> Iterator[str]:
    """Yield files of the interpreter's own prefix that define what the loaded libstdc++ lacks."""
    wanted = {node for item in unmet if item.name == _LIBSTDCXX for node in item.versions}
    for prefix in _prefixes(facts) if wanted else ():
        for name in sorted(files.names(f"{prefix}/lib")):
            file = files.at(f"{prefix}/lib/{name}") if name.startswith(_LIBSTDCXX) else None
            if file and wanted <= files.versions(file).defined:
                yield file.path


def _conda_libstdcxx(
    files: LibraryFiles, facts: FactSet, unmet: Sequence[Unmet]
) -> Iterator[tuple[str, str]]:
    """Yield prefix and name of conda's packages of libstdc++, by the records in `conda-meta`."""
    is_lacking = any(item.name == _LIBSTDCXX for item in unmet)
    for prefix in _prefixes(facts) if is_lacking else ():
        for name in sorted(files.names(f"{prefix}/conda-meta")):
            if name.startswith("libstdcxx") and name.endswith(".json"):
                yield prefix, name.rsplit("-", 2)[0]


def _prefixes(facts: FactSet) -> Iterable[str]:
    conda = facts.need(VariablesFact).get("CONDA_PREFIX")
    return dict.fromkeys(filter(None, (facts.need(InterpreterFact).prefix, conda)))


def _as_fact(item: Mapped) -> LoadedObject:
    return LoadedObject(
        found=item.found,
        soname=item.file.header.soname if item.file.header else "",
        needed_by=item.by.file.path if item.by else "",
        distribution=item.distribution,
        needs=tuple((name, target.file.path if target else "") for name, target in item.needs),
        error=item.file.error,
    )
