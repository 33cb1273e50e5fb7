"""From a profile, decide where torch may come from on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envdoctor.torch_index import default_build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.pip_config import PipConfig
    from envdoctor.profile import IndexSection, Profile
    from envdoctor.sources import Sources

DEFAULT_INDEX = "PyPI"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to get all packages.

    Args:
        source: Where torch comes from, in words.
        torch: The requirement on torch, with the local tag where the source uses it.
        named_index: Index for its `packages` only; None if there is none.
        default_index: URL of the index of all other packages; None is uv's own default, PyPI.
        extra_indexes: Indexes mixed with the default one, as pip does it.
        find_links: Folders or pages of wheels.
        no_index: True to ask no index at all.
    """

    source: str
    torch: str
    named_index: IndexSection | None = None
    default_index: str | None = None
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A source that is not asked, with the reason."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """What to ask of which sources, in order; the first that has it all serves.

    Args:
        profile: What is asked.
        candidates: Ways to get it.
        left_out: Sources that are not asked.
        constraints: Constraint files that pip is configured with.
        is_offline: True if no network is asked.
    """

    profile: Profile
    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]
    constraints: tuple[str, ...] = ()
    is_offline: bool = False


def make(profile: Profile, sources: Sources) -> BuildPlan:
    """Order the sources of a profile: wheels, named indexes, pip's, the default index."""
    anywhere = (_from_wheels, _from_named_indexes, _from_pip, _from_default)
    ways = [_from_wheelhouse] if sources.offline_index else anywhere
    found = [one for way in ways for one in way(profile, sources)]
    return BuildPlan(
        profile=profile,
        candidates=tuple(one for one in found if isinstance(one, Candidate)),
        left_out=tuple(one for one in found if isinstance(one, LeftOut)),
        constraints=sources.pip.constraints,
        is_offline=bool(sources.offline_index),
    )


def default_index(profile: Profile) -> IndexSection | None:
    """Return the section of the default index; None if the profile has none."""
    return next((index for index in profile.index if index.default), None)


def is_plain_variant(profile: Profile) -> bool:
    """Tell whether the default index's plain torch is known to be of the profile's variant."""
    index = default_index(profile)
    return index is not None and profile.torch.version in index.same_variant.get("torch", ())


def _tagged(profile: Profile) -> str:
    return f"torch=={profile.torch.version}+{profile.torch.variant}"


def _pins(profile: Profile) -> list[str]:
    """Return requirements on torch where both tagged and plain wheels may lie, best first."""
    plain = [f"torch=={profile.torch.version}"] if is_plain_variant(profile) else []
    return [_tagged(profile), *plain]


def _from_wheelhouse(profile: Profile, sources: Sources) -> Iterator[Candidate | LeftOut]:
    """Return the only way without network: what was fetched before, and local folders."""
    local = (*(str(path) for path in sources.wheels), *sources.pip.find_links)
    for pin in _pins(profile):
        yield Candidate(
            source="the wheelhouse and local folders",
            torch=pin,
            default_index=sources.offline_index,
            find_links=local,
        )


def _from_wheels(profile: Profile, sources: Sources) -> Iterator[Candidate | LeftOut]:
    folders = tuple(str(path) for path in sources.wheels)
    if not folders:
        return
    name = f"wheel folder {', '.join(folders)}"
    for pin in _pins(profile):
        yield Candidate(source=f"{name} alone", torch=pin, find_links=folders, no_index=True)
    yield _on_base(profile, sources, source=name, torch=_tagged(profile))


def _from_named_indexes(profile: Profile, sources: Sources) -> Iterator[Candidate | LeftOut]:
    for index in profile.index:
        if index.default:
            continue
        if reason := _refusal(index.url, sources):
            yield LeftOut(source=f"{index.name} index", reason=reason)
            continue
        name = f"{index.name} index {index.url}"
        yield _on_base(profile, sources, source=name, torch=_tagged(profile), named_index=index)


def _from_pip(profile: Profile, sources: Sources) -> Iterator[Candidate | LeftOut]:
    if sources.pip.names_sources:
        for pin in _pins(profile):
            yield _on_base(profile, sources, source=f"pip's {_words(sources.pip)}", torch=pin)
    elif profile.sources.pip_config == "inherit":
        yield LeftOut(
            source="pip's configuration", reason="pip is configured with no source of its own"
        )


def _from_default(profile: Profile, sources: Sources) -> Iterator[Candidate | LeftOut]:
    index = default_index(profile)
    url = index.url if index else ""
    name = f"{index.name} index {url}" if index and url else DEFAULT_INDEX
    if reason := _refusal(url, sources):
        yield LeftOut(source=name, reason=reason)
    elif not is_plain_variant(profile):
        yield LeftOut(source=name, reason=_other_variant(profile, index))
    else:
        links = tuple(str(path) for path in sources.wheels)
        pin = f"torch=={profile.torch.version}"
        name = f"{name}, whose plain wheel is the same variant ({profile.torch.variant})"
        yield Candidate(source=name, torch=pin, default_index=url or None, find_links=links)


def _other_variant(profile: Profile, index: IndexSection | None) -> str:
    """Say why plain wheels of the default index are not taken, and which would be."""
    version, variant = profile.torch.version, profile.torch.variant
    known = default_build(version).partition("+")[2]
    is_of = f"is {known}, not {variant}" if known else f"is not known to be {variant}"
    fitting = index.same_variant.get("torch", ()) if index else ()
    instead = f'; torch.version = "{fitting[-1]}" would do' if fitting else ""
    return f"its torch {version} {is_of}{instead}"


def _refusal(url: str, sources: Sources) -> str:
    if sources.pip.no_index:
        return "pip is configured to ask no index"
    return sources.dead.get(url, "")


def _on_base(
    profile: Profile,
    sources: Sources,
    *,
    source: str,
    torch: str,
    named_index: IndexSection | None = None,
) -> Candidate:
    """Return a candidate that takes what is not torch from where pip takes it."""
    index, pip = default_index(profile), sources.pip
    fallback = index.url if index and index.url not in sources.dead else ""
    own = pip.index_url if pip.index_url not in sources.dead else None
    return Candidate(
        source=source,
        torch=torch,
        named_index=named_index,
        default_index=own or fallback or None,
        extra_indexes=() if pip.no_index else pip.extra_index_urls,
        find_links=(*(str(path) for path in sources.wheels), *pip.find_links),
        no_index=pip.no_index,
    )


def _words(pip: PipConfig) -> str:
    parts = {
        f"index {pip.index_url}": pip.index_url and not pip.no_index,
        f"extra index {', '.join(pip.extra_index_urls)}": pip.extra_index_urls and not pip.no_index,
        f"find-links {', '.join(pip.find_links)}": pip.find_links,
    }
    return " and ".join(text for text, given in parts.items() if given) or "configuration"
