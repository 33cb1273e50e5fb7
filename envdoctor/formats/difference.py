"""Turn a comparison of two states into lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from envdoctor.render import Line
from envdoctor.suspicion import Suspicion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.diff import Change, Comparison

_TITLES: dict[Suspicion, tuple[str, str]] = {
    "likely": ("likely", "bold red"),
    "possible": ("possible", "bold yellow"),
    "unlikely": ("unlikely", ""),
    "cannot": ("cannot be why torch or CUDA stopped working", "dim"),
}


def difference_lines(comparison: Comparison) -> Iterator[Line]:
    """Yield the changes, most suspicious first, and what was not compared."""
    yield Line(f"before  {comparison.before}")
    yield Line(f"after   {comparison.after}")
    levels: tuple[Suspicion, ...] = get_args(Suspicion)
    for level in levels:
        group = [item for item in comparison.changes if item.suspicion == level]
        if group:
            title, style = _TITLES[level]
            yield Line("")
            yield Line(title, style or "bold")
            yield from (Line(f"  {_text(item)}", style) for item in group)
    yield Line("")
    yield from (Line(f"not compared  {text}", "yellow") for text in comparison.not_compared)
    number = len(comparison.changes)
    yield Line(f"{number} change{'' if number == 1 else 's'}" if number else "nothing changed")


def _text(item: Change) -> str:
    if item.before is None:
        what = f"{item.after} is new"
    elif item.after is None:
        what = f"{item.before} is gone"
    else:
        what = f"{item.before} -> {item.after}"
    return f"{item.section} {item.key}: {what} ({item.reason})"
