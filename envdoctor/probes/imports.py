"""Read where Python finds the modules that matter, without importing anything."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from envdoctor.facts import (
    FactSet,
    ImportFolder,
    ImportPathFact,
    InterpreterFact,
    ModuleCopy,
    StartupFile,
)
from envdoctor.probes.files import UnreadableError, list_folder, read_text
from envdoctor.probes.startup_files import find_startup_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envdoctor.facts.imports import Form, InitText
    from envdoctor.probes.subject import Subject

WATCHED_MODULES = (
    "accelerate", "cuda", "filelock", "flash_attn", "fsspec", "functorch", "huggingface_hub",
    "jinja2", "mpmath", "networkx", "numpy", "nvidia", "packaging", "safetensors", "sympy",
    "tokenizers", "torch", "torchaudio", "torchgen", "torchvision", "tqdm", "transformers",
    "triton", "typing_extensions", "xformers", "yaml",
)  # fmt: skip
"""Import names of torch, of what it imports, and of what training imports beside it."""

SHARED_NAMESPACES = frozenset({"cuda", "nvidia"})
"""Modules that many distributions put parts into, so that one `__init__.py` can hide the others."""

_USER_SITE = (".local/lib/python", "site-packages")
_INIT_LIMIT = 256 * 1024
_RECORD_LIMIT = 16 * 1024 * 1024


def read_import_path(subject: Subject, facts: FactSet) -> ImportPathFact:
    """List the folders of `sys.path` and the copies of modules that matter in them."""
    listed = list(_distinct(subject, _named_folders(subject, facts.need(InterpreterFact))))
    startup = find_startup_files(subject, [folder.path for folder, _ in listed])
    inserted = [
        ImportFolder(path=path, origin="startup file", source=file)
        for file, paths in startup.items()
        for path in paths
    ]
    # What a startup file inserts, it inserts in front.
    folders = list(_distinct(subject, [*inserted, *(folder for folder, _ in listed)]))
    return ImportPathFact(
        folders=tuple(folder for folder, _ in folders),
        copies=tuple(copy for folder, place in folders for copy in _copies(folder, place)),
        startup_files=tuple(
            StartupFile(path=path, is_clear=bool(paths)) for path, paths in startup.items()
        ),
    )


def _named_folders(subject: Subject, interpreter: InterpreterFact) -> Iterator[ImportFolder]:
    """Yield the folders in the order of `sys.path`: working folder, PYTHONPATH, packages."""
    if subject.is_this_machine and not subject.variables.get("PYTHONSAFEPATH"):
        # a working folder may have been deleted
        with suppress(OSError):
            yield ImportFolder(path=os.getcwd(), origin="working folder")  # noqa: PTH109  a string
    for path in subject.variables.get("PYTHONPATH", "").split(":"):
        if path:
            yield ImportFolder(path=path.rstrip("/") or "/", origin="PYTHONPATH")
    for path in interpreter.site_packages:
        is_users = path == interpreter.user_site or all(part in path for part in _USER_SITE)
        yield ImportFolder(path=path, origin="user site" if is_users else "site-packages")


def _distinct(
    subject: Subject, folders: Iterator[ImportFolder] | list[ImportFolder]
) -> Iterator[tuple[ImportFolder, Path]]:
    """Yield each real folder once with where it lies; a link to one seen before is none."""
    seen: set[str] = set()
    for folder in folders:
        place = subject.locate(folder.path)
        real = os.path.realpath(place)
        if real not in seen and os.path.isdir(real):  # noqa: PTH112  realpath gave a string
            seen.add(real)
            yield folder, place


def _copies(folder: ImportFolder, place: Path) -> list[ModuleCopy]:
    entries = frozenset(list_folder(place))
    shared = [entry for entry in entries if entry.endswith(".so")]
    found: dict[str, ModuleCopy] = {}
    suspicious: list[str] = []
    for name in WATCHED_MODULES:
        entry, form = _taken(entries, shared, place, name)
        if form is None:
            continue
        shares = form == "package" and name in SHARED_NAMESPACES
        init = init_text(place / entry / "__init__.py") if shares else "none"
        file = f"{entry}/__init__.py" if form == "package" else entry
        found[file] = ModuleCopy(
            name=name, path=f"{folder.path}/{entry}", folder=folder, form=form, init=init
        )
        # The environment's own packages are many; an owner is sought of what should not be there.
        is_ours = folder.origin == "site-packages"
        if not is_ours or init in {"code", "namespace"} or (name == "cuda" and init == "empty"):
            suspicious.append(file)
    owners = find_owners(place, entries, suspicious)
    return [replace(copy, owner=owners.get(file, "")) for file, copy in found.items()]


def _taken(
    entries: frozenset[str], shared: list[str], place: Path, name: str
) -> tuple[str, Form | None]:
    """Return the entry that Python takes for a name, and how; None if the folder has none.

    Source: importlib's FileFinder: a package, then extensions, then a `.py` file, then a namespace.
    """
    is_folder = name in entries and (place / name).is_dir()
    if is_folder and (place / name / "__init__.py").exists():
        return name, "package"
    extension = next((entry for entry in shared if entry.startswith(f"{name}.")), None)
    if extension:
        return extension, "extension"
    if f"{name}.py" in entries:
        return f"{name}.py", "module"
    return (name, "namespace") if is_folder else ("", None)


def init_text(path: Path) -> InitText:
    """Tell what an `__init__.py` holds; one that cannot be read counts as code."""
    try:
        if path.stat().st_size == 0:
            return "empty"
        text = read_text(path, limit=_INIT_LIMIT) or ""
    except (OSError, UnreadableError):
        return "code"
    lines = [line.strip() for line in text.splitlines()]
    if all(not line or line.startswith("#") for line in lines):
        return "empty"
    return "namespace" if "extend_path" in text or "declare_namespace" in text else "code"


def find_owners(place: Path, entries: frozenset[str], files: list[str]) -> dict[str, str]:
    """Return name and version of the distributions whose RECORD lists some files, by file."""
    owners: dict[str, str] = {}
    infos = sorted(entry for entry in entries if entry.endswith(".dist-info"))
    for entry in infos if files else []:
        try:
            record = "\n" + (read_text(place / entry / "RECORD", limit=_RECORD_LIMIT) or "")
        except UnreadableError:
            continue
        name, _, version = entry.removesuffix(".dist-info").partition("-")
        for file in files:
            if f"\n{file}," in record:
                owners.setdefault(file, f"{name.replace('_', '-').lower()} {version}")
        if len(owners) == len(files):
            break
    return owners
