"""Other addresses of a file that its source does not give: any index with the same hash will do."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from envdoctor import uv_failures
from envdoctor.errors import SourceError
from envdoctor.urls import local_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from envdoctor.plan import BuildPlan, Candidate
    from envdoctor.pylock import Wheel
    from envdoctor.workshop import Workshop

_TIMEOUT_SECONDS = 60


class Alternates:
    """Asks each index of a plan, by itself, where it has a wheel.

    uv is asked, as it knows how to talk to indexes. One that does not answer is asked once.

    Args:
        plan: Names the indexes.
        shop: Of the build.
    """

    def __init__(self, plan: BuildPlan, shop: Workshop) -> None:
        self._plan = plan
        # Whoever waits for a file is not to wait for a source that does not answer.
        self._shop = replace(shop, variables={**shop.variables, "UV_HTTP_RETRIES": "0"})
        self._silent: set[tuple[str, ...]] = set()

    def of(self, wheel: Wheel, *, known: Collection[str]) -> list[str]:
        """Return further addresses of a wheel, those that are known left out."""
        asks = dict.fromkeys(ask for one in self._plan.candidates for ask in _asks(wheel, one))
        found = (url for ask in asks if ask not in self._silent for url in self._told(wheel, ask))
        return [url for url in dict.fromkeys(found) if url not in known]

    def _told(self, wheel: Wheel, ask: tuple[str, ...]) -> list[str]:
        folder = self._shop.staged / "alternates"
        folder.mkdir(exist_ok=True)
        wanted, output = folder / "wanted.in", folder / "pylock.toml"
        wanted.write_text(f"{wheel.name}=={wheel.version}\n")
        output.unlink(missing_ok=True)
        argv = [
            *("pip", "compile", str(wanted), "--no-deps", "--format", "pylock.toml"),
            *("--output-file", str(output), "--only-binary", ":all:"),
            *("--python", self._shop.interpreter.path, *ask),
        ]
        try:
            done = self._shop.run_uv(argv, timeout=_TIMEOUT_SECONDS)
        except SourceError:
            self._silent.add(ask)
            return []
        if done.returncode != 0:
            if isinstance(uv_failures.meaning(done.stderr), SourceError):
                self._silent.add(ask)
            return []
        packages: list[dict[str, Any]] = tomllib.loads(output.read_text("utf-8"))["packages"]
        return [
            str(entry["url"])
            for package in packages
            for entry in package.get("wheels", ())
            if entry.get("hashes", {}).get("sha256") == wheel.sha256 and "url" in entry
        ]


def index_urls(plan: BuildPlan) -> list[str]:
    """Return the addresses of all indexes of a plan; some may hold credentials."""
    found: list[str] = []
    for one in plan.candidates:
        named = [one.named_index.url] if one.named_index else []
        default = [one.default_index] if one.default_index else []
        found += [*named, *default, *one.extra_indexes, *one.find_links]
    return [url for url in dict.fromkeys(found) if local_path(url) is None]


def _asks(wheel: Wheel, candidate: Candidate) -> Iterator[tuple[str, ...]]:
    """Yield the options of uv that mean one source each."""
    named = candidate.named_index
    if named and wheel.name in named.packages:
        yield ("--default-index", named.url)
    elif not candidate.no_index:
        yield ("--default-index", candidate.default_index) if candidate.default_index else ()
        yield from (("--default-index", url) for url in candidate.extra_indexes)
    yield from (("--no-index", "--find-links", place) for place in candidate.find_links)
