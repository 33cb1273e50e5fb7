"""What a fact is, and one snapshot of them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from envdoctor.value import keyword_value, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@keyword_value
class Fact:
    """Base of all facts: frozen, comparable, JSON-able."""


@value
class Unavailable:
    """A probe could not read its fact."""

    reason: str


F = TypeVar("F", bound=Fact)


class FactSet:
    """One snapshot: at most one fact of each kind.

    Args:
        facts: The facts; a later one of the same kind replaces an earlier one.
        unavailable: Kinds that could not be read, with the reason.
    """

    def __init__(
        self, facts: Iterable[Fact], unavailable: Mapping[type[Fact], Unavailable] | None = None
    ) -> None:
        self._facts = {type(fact): fact for fact in facts}
        self._unavailable = dict(unavailable or {})

    def __iter__(self) -> Iterator[Fact]:
        """Iterate over the facts that were read."""
        return iter(self._facts.values())

    @property
    def unavailable(self) -> Mapping[type[Fact], Unavailable]:
        """Kinds that could not be read, with the reason."""
        return MappingProxyType(self._unavailable)

    def having(self, fact: Fact) -> FactSet:
        """Return this snapshot with one more fact."""
        return FactSet([*self, fact], self._unavailable)

    def lacking(self, kind: type[Fact], reason: str) -> FactSet:
        """Return this snapshot with the reason why a kind could not be read."""
        return FactSet(self, {**self._unavailable, kind: Unavailable(reason)})

    def get(self, kind: type[F]) -> F | Unavailable:
        """Return the fact of a kind, or why there is none."""
        fact = self._facts.get(kind)
        if isinstance(fact, kind):
            return fact
        return self._unavailable.get(kind, Unavailable(f"no {kind.__name__} was read"))

    def need(self, kind: type[F]) -> F:
        """Return the fact of a kind.

        Raises:
            LookupError: It was not read; the message says why.
        """
        fact = self.get(kind)
        if isinstance(fact, Unavailable):
            raise LookupError(fact.reason)  # noqa: TRY004  nothing was found, no type is wrong
        return fact
