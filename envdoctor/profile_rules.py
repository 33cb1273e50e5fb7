"""Rules of a profile that concern the meaning of its values, not their types."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from envdoctor.urls import mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.profile import IndexSection, Profile


def contradictions(profile: Profile) -> list[str]:
    """Return one line for each value that cannot be meant."""
    return [
        *_python_problems(profile),
        *_time_problems(profile),
        *_package_problems(profile),
        *_index_problems(profile),
        *_variable_problems(profile),
    ]


def _python_problems(profile: Profile) -> Iterator[str]:
    try:
        SpecifierSet(profile.python.requires)
    except InvalidSpecifier:
        yield f"python.requires: found {profile.python.requires!r}, wanted one like '>=3.11,<3.15'"


def _time_problems(profile: Profile) -> Iterator[str]:
    text = profile.sources.exclude_newer
    wanted = "wanted a time with its zone, such as '2026-11-01T00:00:00Z'"
    try:
        if text and datetime.fromisoformat(text).tzinfo is None:
            yield f"sources.exclude_newer: found {text!r}, {wanted}"
    except ValueError:
        yield f"sources.exclude_newer: found {text!r}, {wanted}"


def _package_problems(profile: Profile) -> Iterator[str]:
    for number, text in enumerate(profile.packages.require):
        key = f"packages.require[{number}]"
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            yield f"{key}: found {text!r}, wanted a requirement such as 'numpy==2.4.6'"
            continue
        if requirement.url:
            yield f"{key}: found the URL of {requirement.name}, wanted a version: URLs have no lock"
        elif canonicalize_name(requirement.name) == "torch":
            yield f"{key}: found {text!r}, wanted torch in torch.version and torch.variant only"


def _index_problems(profile: Profile) -> Iterator[str]:
    names = [index.name for index in profile.index]
    for number, index in enumerate(profile.index):
        key = f"index[{number}]"
        if index.name in names[:number]:
            yield f"{key}.name: found {index.name!r} twice, wanted a name for each index"
        if index.default and any(other.default for other in profile.index[:number]):
            yield f"{key}.default: found a second default index, wanted one"
        yield from _own_problems(index, key)


def _own_problems(index: IndexSection, key: str) -> Iterator[str]:
    if index.url and not _is_url(index.url):
        yield f"{key}.url: found {mask(index.url)!r}, wanted a URL of https, http or file"
    if not index.url and not index.default:
        yield f"{key}.url: missing, wanted a URL: only the default index may leave it out"
    if index.default and index.packages:
        yield f"{key}.packages: found a list, wanted none: the default index has all packages"
    if not index.default and "torch" not in index.packages:
        yield f"{key}.packages: found no 'torch', wanted it: other indexes exist for torch's family"
    if not index.default and index.same_variant:
        yield f"{key}.same_variant: found a table, wanted it on the default index only"


def _variable_problems(profile: Profile) -> Iterator[str]:
    for name, value in profile.env.set.items():
        if not name or "=" in name or "\0" in name:
            yield f"env.set: found the name {name!r}, wanted one without '=', such as 'HF_HOME'"
        if "\0" in value:
            yield f"env.set.{name}: found {value!r}, wanted text without a NUL"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        # A port that is none raises, once it is looked at; what is no variable yet may be one.
        has_host = bool(parts.hostname) and ("${" in text or parts.port != 0)
    except ValueError:
        return False
    if not text.isprintable() or " " in text:
        return False
    return parts.scheme == "file" or (parts.scheme in {"https", "http"} and has_host)
