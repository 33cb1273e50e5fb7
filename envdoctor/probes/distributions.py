"""Read what is installed from `.dist-info` folders."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.facts import Distribution, DistributionsFact, FactSet, InterpreterFact
from envdoctor.probes.files import UnreadableError, is_folder, list_folder, modified_at, read_text
from envdoctor.probes.torch_build import parse_version_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from envdoctor.probes.subject import Subject

_DIST_INFO = ".dist-info"
_EGG_INFO = ".egg-info"
_SEPARATORS = re.compile(r"[-_.]+")
_METADATA_LIMIT = 8 * 1024 * 1024


def read_distributions(subject: Subject, facts: FactSet) -> DistributionsFact:
    """Read every `.dist-info` folder and the top-level modules beside them."""
    distributions: list[Distribution] = []
    leftovers: list[str] = []
    modules: list[tuple[str, str]] = []
    egg_infos: list[str] = []
    for site in facts.need(InterpreterFact).site_packages:
        for entry in list_folder(site):
            path = f"{site}/{entry}"
            if entry.startswith("~"):
                leftovers.append(path)
            elif entry.endswith(_DIST_INFO):
                distributions.append(read_distribution(path, locate=subject.locate))
            elif entry.endswith(_EGG_INFO):
                egg_infos.append(normalised(entry.removesuffix(_EGG_INFO).partition("-")[0]))
            elif name := _module_name(path, entry):
                modules.append((name, path))
    return DistributionsFact(
        distributions=tuple(_with_code_versions(distributions)),
        leftovers=tuple(leftovers),
        modules=tuple(modules),
        egg_infos=tuple(egg_infos),
    )


def _with_code_versions(distributions: list[Distribution]) -> Iterator[Distribution]:
    """Yield distributions, those that one folder holds twice with the version of their code."""
    places = [(dist.path.rpartition("/")[0], dist.name) for dist in distributions]
    count = Counter(places)
    for dist, (folder, name) in zip(distributions, places, strict=True):
        if count[folder, name] == 1:
            yield dist
            continue
        text = _text(f"{folder}/{name.replace('-', '_')}/version.py")
        yield replace(dist, code_version=parse_version_file(text).get("__version__", ""))


def normalised(name: str) -> str:
    """Return a distribution's name as PEP 503 writes it."""
    return _SEPARATORS.sub("-", name).lower()


def read_distribution(path: str, *, locate: Callable[[str], Path] = Path) -> Distribution:
    """Read one `.dist-info` folder; where METADATA is missing its folder's name speaks.

    Args:
        path: The folder.
        locate: Where a path of the inspected machine lies.
    """
    entries = frozenset(list_folder(path))
    folder_name, _, folder_version = Path(path).name.removesuffix(_DIST_INFO).partition("-")
    headers = parse_metadata(_text(f"{path}/METADATA")) if "METADATA" in entries else {}
    names = headers.get("name", []) or [folder_name]
    versions = headers.get("version", []) or [folder_version]
    wheel = parse_metadata(_text(f"{path}/WHEEL")) if "WHEEL" in entries else {}
    origin = _text(f"{path}/direct_url.json") if "direct_url.json" in entries else ""
    editable = editable_target(origin)
    installed_at = modified_at(f"{path}/RECORD") if "RECORD" in entries else None
    return Distribution(
        name=normalised(names[0]),
        version=versions[0],
        path=path,
        requires=tuple(headers.get("requires-dist", [])),
        installer=_text(f"{path}/INSTALLER").strip() if "INSTALLER" in entries else "",
        has_record=installed_at is not None,
        installed_at=installed_at or 0,
        has_metadata="METADATA" in entries,
        is_requested="REQUESTED" in entries,
        tags=tuple(wheel.get("tag", [])),
        editable=editable,
        is_editable_gone=bool(editable) and not is_folder(locate(editable)),
    )


def editable_target(direct_url: str) -> str:
    """Return the source folder that a `direct_url.json` of an editable installation names.

    Source: PyPA "Recording the Direct URL Origin of installed distributions".
    """
    if '"editable"' not in direct_url:
        return ""
    import json  # noqa: PLC0415  few environments need these two
    from urllib.parse import unquote  # noqa: PLC0415

    try:
        data = json.loads(direct_url)
        url, is_editable = data["url"], data["dir_info"]["editable"]
    # json raises RecursionError for deep nesting
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    if is_editable is not True or not isinstance(url, str) or not url.startswith("file://"):
        return ""
    path = unquote(url.removeprefix("file://"))
    return path if path.startswith("/") and "\0" not in path else ""


def parse_metadata(text: str) -> dict[str, list[str]]:
    """Parse the headers of METADATA into lists by lower-case key; the body is left out.

    Source: core metadata specification; continuation lines are kept out, no key read here has any.
    """
    headers: dict[str, list[str]] = {}
    # The body, a README, is ten times as long as the headers and is not looked at.
    for line in text.partition("\n\n")[0].splitlines():
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
