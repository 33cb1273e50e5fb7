"""Read what is installed from `.dist-info` folders."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.facts import Distribution, DistributionsFact, FactSet, InterpreterFact
from envdoctor.probes.files import UnreadableError, list_folder, read_text

if TYPE_CHECKING:
    from envdoctor.probes.subject import Subject

_DIST_INFO = ".dist-info"
_SEPARATORS = re.compile(r"[-_.]+")
_METADATA_LIMIT = 8 * 1024 * 1024


def read_distributions(subject: Subject, facts: FactSet) -> DistributionsFact:
    """Read every `.dist-info` folder and the top-level modules beside them."""
    del subject
    distributions: list[Distribution] = []
    leftovers: list[str] = []
    modules: list[tuple[str, str]] = []
    for site in facts.need(InterpreterFact).site_packages:
        for entry in list_folder(site):
            path = f"{site}/{entry}"
            if entry.startswith("~"):
                leftovers.append(path)
            elif entry.endswith(_DIST_INFO):
                distributions.append(read_distribution(path))
            elif name := _module_name(path, entry):
                modules.append((name, path))
    return DistributionsFact(
        distributions=tuple(distributions), leftovers=tuple(leftovers), modules=tuple(modules)
    )


def normalised(name: str) -> str:
    """Return a distribution's name as PEP 503 writes it."""
    return _SEPARATORS.sub("-", name).lower()


def read_distribution(path: str) -> Distribution:
    """Read one `.dist-info` folder; where METADATA is missing its folder's name speaks."""
    folder_name, _, folder_version = Path(path).name.removesuffix(_DIST_INFO).partition("-")
    headers = parse_metadata(_text(f"{path}/METADATA"))
    names = headers.get("name", []) or [folder_name]
    versions = headers.get("version", []) or [folder_version]
    return Distribution(
        name=normalised(names[0]),
        version=versions[0],
        path=path,
        requires=tuple(headers.get("requires-dist", [])),
        installer=_text(f"{path}/INSTALLER").strip(),
        has_record=Path(f"{path}/RECORD").is_file(),
    )


def parse_metadata(text: str) -> dict[str, list[str]]:
    """Parse the headers of METADATA into lists by lower-case key; the body is left out.

    Source: core metadata specification; continuation lines are kept out, no key read here has any.
    """
    headers: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line:
            break
        key, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            headers.setdefault(key.strip().lower(), []).append(value.strip())
    return headers


def _text(path: str) -> str:
    try:
        return read_text(path, limit=_METADATA_LIMIT) or ""
    except UnreadableError:
        return ""


def _module_name(path: str, entry: str) -> str:
    """Return the import name of an entry of site-packages; empty if it cannot be imported."""
    if entry.endswith(".py"):
        return entry.removesuffix(".py")
    if ".so" in entry:
        return entry.partition(".")[0]
    if entry.isidentifier() and entry != "__pycache__" and Path(path).is_dir():
        return entry
    return ""
