"""What a check is: a pure function of typed facts, with its explanation and prerequisites."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from envdoctor.facts import Fact, FactSet, Unavailable
from envdoctor.value import value
from envdoctor.verdict import Crashed, Outcome, Problem, Skipped, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEADINGS = ("## What it checks", "## Why it matters", "## Remedy", "## Source")


@value
class Check:
    """One diagnosis.

    Args:
        id: Kebab-case name of the problem.
        reads: Parameter names and the kinds of facts they take.
        optional: Names of parameters that take None where their fact could not be read.
        requires: Ids of checks without whose `Ok` this one says nothing.
        follows_from: Ids of checks whose error is the root of what this one would report.
        function: The judgement.
    """

    id: str
    reads: tuple[tuple[str, type[Fact]], ...]
    optional: frozenset[str]
    requires: tuple[str, ...]
    follows_from: tuple[str, ...]
    function: Callable[..., Verdict]

    @property
    def explanation(self) -> str:
        """The page that `envdoctor explain ID` prints."""
        return inspect.getdoc(self.function) or ""

    @property
    def title(self) -> str:
        """First line of the explanation."""
        return self.explanation.partition("\n")[0]

    def evaluate(self, facts: FactSet) -> tuple[Outcome, ...]:
        """Judge the facts.

        Returns:
            At least one outcome; several only if each is a `Problem`.
        """
        arguments: dict[str, Fact | None] = {}
        for name, kind in self.reads:
            fact = facts.get(kind)
            if not isinstance(fact, Unavailable):
                arguments[name] = fact
            elif name in self.optional:
                arguments[name] = None
            else:
                return (Skipped(fact.reason),)
        try:
            verdict = self.function(**arguments)
        # One broken check must not hide what the others found; the report shows it as crashed.
        except Exception as error:  # noqa: BLE001
            return (Crashed(f"{type(error).__name__}: {error}"),)
        if isinstance(verdict, tuple):
            return verdict or (Crashed("the check returned an empty tuple"),)
        return (verdict,)


def check(
    *, requires: Sequence[str] = (), follows_from: Sequence[str] = ()
) -> Callable[[Callable[..., Verdict]], Check]:
    """Make a check of a function.

    The id is the function's name in kebab-case, the docstring is its explanation, the annotated
    parameters are the facts it reads. Without one of them the check is skipped, unless it is
    annotated `SomeFact | None`.

    Args:
        requires: Ids of checks that must be `Ok` first.
        follows_from: Ids of checks whose error, if there is one, is the root of a problem of this
            one, which is then left to them.

    Returns:
        A decorator.

    Raises:
        TypeError: A parameter is no fact, or the docstring lacks a heading.
    """

    def make(function: Callable[..., Verdict]) -> Check:
        page = function.__doc__ or ""
        missing = [heading for heading in HEADINGS if heading not in page]
        if missing:
            raise TypeError(f"check {function.__name__} has no {missing[0]!r} in its docstring")
        reads, optional = _facts_read(function)
        return Check(
            id=function.__name__.replace("_", "-"),
            reads=reads,
            optional=optional,
            requires=tuple(requires),
            follows_from=tuple(follows_from),
            function=function,
        )

    return make


def _facts_read(
    function: Callable[..., Any],
) -> tuple[tuple[tuple[str, type[Fact]], ...], frozenset[str]]:
    # With annotations kept as text each is a plain name; evaluating them all takes 10 ms.
    reads: list[tuple[str, type[Fact]]] = []
    optional: set[str] = set()
    code = function.__code__
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        arms = [arm.strip() for arm in str(function.__annotations__.get(name)).split("|")]
        if "None" in arms:
            optional.add(name)
        kinds = [function.__globals__.get(arm) for arm in arms if arm != "None"]
        kind = kinds[0] if len(kinds) == 1 else None
        if not (isinstance(kind, type) and issubclass(kind, Fact)):
            raise TypeError(f"check {function.__name__}: parameter {name!r} is no fact")
        reads.append((name, kind))
    return tuple(reads), frozenset(optional)


def is_kebab_case(name: str) -> bool:
    """Tell whether a name is written like `driver-too-old-for-cuda`."""
    return re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", name) is not None


def problems(found: Sequence[Problem], otherwise: Verdict) -> Verdict:
    """Return the problems if there are any, else another verdict."""
    return tuple(found) or otherwise
