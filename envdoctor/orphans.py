"""Packages that only certain others brought into an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.compatibility import kept_packages
from envdoctor.requirements import requirements_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from envdoctor.facts import Distribution, DistributionsFact

Node = tuple[str, frozenset[str]]
"""A package by normalised name, with the extras that were asked for."""


class Requirers:
    """Who requires whom among installed packages.

    Args:
        installed: All that is installed.
        environment: Values of PEP 508 markers.
    """

    def __init__(self, installed: DistributionsFact, environment: dict[str, str]) -> None:
        self._dists = {dist.name: dist for dist in installed.distributions}
        self._environment = environment
        self._required: dict[Node, tuple[Node, ...]] = {}

    def reachable(self, names: Iterable[str]) -> set[str]:
        """Return the packages with all that they require, directly or not."""
        queue: list[Node] = [(name, frozenset()) for name in names if name in self._dists]
        seen = set(queue)
        while queue:
            for node in self._required_by(queue.pop()):
                if node not in seen:
                    seen.add(node)
                    queue.append(node)
        return {name for name, _ in seen}

    def _required_by(self, node: Node) -> tuple[Node, ...]:
        if node not in self._required:
            name, extras = node
            found = requirements_of(
                self._dists[name],
                self._environment,
                wanted=self._dists.__contains__,
                extras=extras,
            )
            self._required[node] = tuple((name, frozenset(item.extras)) for name, item in found)
        return self._required[node]

    def only_through(self, names: Collection[str]) -> list[Distribution]:
        """Return what is here only because some packages require it, in the order of names.

        A package that somebody asked for by name, or that training uses, is here for itself.

        Args:
            names: Normalised names of the packages; they are not among the result.
        """
        brought = self.reachable(names) - set(names)
        keep = kept_packages()
        roots = [
            dist.name
            for dist in self._dists.values()
            if dist.name not in names
            and (dist.name not in brought or dist.is_requested or dist.name in keep)
        ]
        orphans = brought - self.reachable(roots)
        return [self._dists[name] for name in sorted(orphans)]
