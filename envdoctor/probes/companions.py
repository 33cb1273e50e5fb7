"""Read what packages beside torch were built for, from the files in which they say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.facts import CompanionBuild, CompanionBuildsFact, FactSet, InterpreterFact
from envdoctor.probes.files import UnreadableError, read_text
from envdoctor.probes.torch_build import parse_version_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.subject import Subject

_LIMIT = 256 * 1024


def read_companion_builds(subject: Subject, facts: FactSet) -> CompanionBuildsFact:
    """Read the builds of torchvision, torchaudio and xformers, where they are installed."""
    del subject
    builds: dict[str, CompanionBuild] = {}
    for site in facts.need(InterpreterFact).site_packages:
        for build in _builds_in(site):
            builds.setdefault(build.name, build)  # the first is the one that is imported
    return CompanionBuildsFact(builds=tuple(builds.values()))


def _builds_in(site: str) -> Iterator[CompanionBuild]:
    for name in ("torchvision", "torchaudio"):
        path = f"{site}/{name}/version.py"
        if values := parse_version_file(_text(path)):
            version = values.get("__version__", "")
            local = version.partition("+")[2]
            yield CompanionBuild(
                name=name,
                path=path,
                version=version,
                cuda=values.get("cuda") or cuda_of_local_tag(local),
            )
    path = f"{site}/xformers/cpp_lib.json"
    if text := _text(path):
        yield parse_xformers_build(path, text)


def parse_xformers_build(path: str, text: str) -> CompanionBuild:
    """Read the build that xformers records beside its library.

    Source: xformers/_cpp_lib.py, `_BuildInfo`, read 2026-11-29: `{"version": {"torch":
    "2.9.0+cu128", "cuda": 1208, ...}}`.
    """
    import json  # noqa: PLC0415  few environments need it

    try:
        version = json.loads(text)["version"]
        torch, cuda = version.get("torch"), version.get("cuda")
    # json raises RecursionError for deep nesting
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        torch = cuda = None
    return CompanionBuild(
        name="xformers",
        path=path,
        torch=torch if isinstance(torch, str) else "",
        cuda=f"{cuda // 100}.{cuda % 100}" if type(cuda) is int else "",
    )


def cuda_of_local_tag(tag: str) -> str:
    """Return the CUDA version that a local tag names: `cu128` is `12.8`; empty for any other."""
    digits = tag.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}" if tag.startswith("cu") and digits.isdecimal() else ""


def _text(path: str) -> str:
    try:
        return read_text(path, limit=_LIMIT) or ""
    except UnreadableError:
        return ""
