"""What a check is: a pure function of typed facts, with its explanation and prerequisites."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from envdoctor.facts import Fact, FactSet, Unavailable
from envdoctor.verdict import Crashed, Outcome, Problem, Skipped, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEADINGS = ("## What it checks", "## Why it matters", "## Remedy", "## Source")


@dataclass(frozen=True, slots=True)
class Check:
    """One diagnosis.

    Args:
        id: Kebab-case name of the problem.
        title: First line of the explanation.
        explanation: The page that `envdoctor explain ID` prints.
        reads: Parameter names and the kinds of facts they take.
        requires: Ids of checks without whose `Ok` this one says nothing.
        function: The judgement.
    """

    id: str
    title: str
    explanation: str
    reads: tuple[tuple[str, type[Fact]], ...]
    requires: tuple[str, ...]
    function: Callable[..., Verdict]

    def evaluate(self, facts: FactSet) -> tuple[Outcome, ...]:
        """Judge the facts.

        Returns:
            At least one outcome; several only if each is a `Problem`.
        """
        arguments: dict[str, Fact] = {}
        for name, kind in self.reads:
            fact = facts.get(kind)
            if isinstance(fact, Unavailable):
                return (Skipped(fact.reason),)
            arguments[name] = fact
        try:
            verdict = self.function(**arguments)
        # One broken check must not hide what the others found; the report shows it as crashed.
        except Exception as error:  # noqa: BLE001
            return (Crashed(f"{type(error).__name__}: {error}"),)
        if isinstance(verdict, tuple):
            return verdict or (Crashed("the check returned an empty tuple"),)
        return (verdict,)


def check(*, requires: Sequence[str] = ()) -> Callable[[Callable[..., Verdict]], Check]:
    """Make a check of a function.

    The id is the function's name in kebab-case, the docstring is its explanation, the annotated
    parameters are the facts it reads.

    Args:
        requires: Ids of checks that must be `Ok` first.

    Returns:
        A decorator.

    Raises:
        TypeError: A parameter is no fact, or the docstring lacks a heading.
    """

    def make(function: Callable[..., Verdict]) -> Check:
        explanation = inspect.getdoc(function) or ""
        missing = [heading for heading in HEADINGS if heading not in explanation]
        if missing:
            raise TypeError(f"check {function.__name__} has no {missing[0]!r} in its docstring")
        return Check(
            id=function.__name__.replace("_", "-"),
            title=explanation.partition("\n")[0],
            explanation=explanation,
            reads=_facts_read(function),
            requires=tuple(requires),
            function=function,
        )

    return make


def _facts_read(function: Callable[..., Any]) -> tuple[tuple[str, type[Fact]], ...]:
    hints = get_type_hints(function)
    names = inspect.signature(function).parameters
    for name in names:
        kind = hints.get(name)
        if not (isinstance(kind, type) and issubclass(kind, Fact)):
            raise TypeError(f"check {function.__name__}: parameter {name!r} is no fact")
    return tuple((name, hints[name]) for name in names)


def is_kebab_case(name: str) -> bool:
    """Tell whether a name is written like `driver-too-old-for-cuda`."""
    return re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", name) is not None


def problems(found: Sequence[Problem], otherwise: Verdict) -> Verdict:
    """Return the problems if there are any, else another verdict."""
    return tuple(found) or otherwise
