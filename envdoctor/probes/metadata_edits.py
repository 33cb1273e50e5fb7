"""Tell an edited METADATA from a broken one, and what its version was before."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from envdoctor.probes.digests import digest_of_bytes
from envdoctor.probes.distributions import normalised, parse_metadata
from envdoctor.probes.files import UnreadableError, open_regular, read_text
from envdoctor.probes.torch_build import parse_version_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from envdoctor.facts import Distribution

_MAX_BYTES = 8 * 1024 * 1024
_VERSION_LINE = re.compile(rb"(?m)^Version:[^\r\n]*")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)")
_STATED = re.compile(r"[=~<>]=\s*([A-Za-z0-9.+!_-]+)")


def is_readable(path: str) -> bool:
    """Tell whether METADATA still states a name and a version."""
    try:
        headers = parse_metadata(read_text(path, limit=_MAX_BYTES) or "")
    except UnreadableError:
        return False
    return bool(headers.get("name") and headers.get("version"))


def original_version(dist: Distribution, digest: str, installed: Sequence[Distribution]) -> str:
    """Return the version with which a METADATA has its recorded hash again.

    Only versions are tried that the environment states elsewhere: the folder's name, requirements
    of other packages, `torch/version.py`.

    Returns:
        The version; empty if none fits, so that more than the version was changed.
    """
    algorithm = digest.partition("=")[0]
    try:
        stream = open_regular(f"{dist.path}/METADATA", limit=_MAX_BYTES)
    except UnreadableError:
        return ""
    if stream is None:
        return ""
    with stream:
        content = stream.read(_MAX_BYTES)
    for version in dict.fromkeys(_stated_versions(dist, installed)):
        line = b"Version: " + version.encode("utf-8", "surrogateescape")
        candidate = _VERSION_LINE.sub(line.replace(b"\\", rb"\\"), content, count=1)
        if digest_of_bytes(candidate, algorithm) == digest:
            return version
    return ""


def _stated_versions(dist: Distribution, installed: Sequence[Distribution]) -> Iterator[str]:
    folder = PurePath(dist.path)
    yield folder.name.removesuffix(".dist-info").rpartition("-")[2]
    yield dist.version.partition("+")[0]
    for other in installed:
        for requirement in other.requires:
            match = _REQUIREMENT.match(requirement)
            if match and normalised(match[1]) == dist.name:
                yield from _STATED.findall(match[2])
    if dist.name == "torch":
        try:
            text = read_text(f"{folder.parent}/torch/version.py", limit=_MAX_BYTES)
        except UnreadableError:
            return
        version = parse_version_file(text or "").get("__version__", "")
        yield version
        yield version.partition("+")[0]
