"""What a person reads of an evaluation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from train.evaluation import FINISHED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_HEADINGS = ("way", "mean", "pooled", "not looping", "looping", "speed-up", "lossless")
_BAR_WIDTH = 40


def head_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was decoded, and by what."""
    plain = report["plain"]
    machine = report["machine"]["device"]
    yield f"target        {report['target']}, {report['dtype']}, {machine}"
    yield f"prompts       {report['prompts_file']}: {_prompt_words(report)}"
    if not math.isnan(plain["tokens_per_second"]):
        yield f"target alone  {plain['tokens_per_second']:.1f} tokens/s, one text at a time"


def run_lines(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of a run, of which at least one way was measured."""
    yield ""
    yield f"{run['run']}: block size {run['block_size']}"
    yield from _table(run)
    yield from _chart(run["ways"]["chain"])


def closing_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what holds for all runs: their spread, what is missing, and what the words mean."""
    num_finished = sum(run["state"] == FINISHED for run in report["runs"])
    if num_finished > 1:
        yield ""
        for name, one in report["spread"].items():
            yield (
                f"{num_finished} runs, {name}: mean acceptance length {one['mean']:.3f},"
                f" standard deviation {one['standard_deviation']:.3f},"
                f" {one['lowest']:.3f} to {one['highest']:.3f}"
            )
    if report["state"] != FINISHED:
        yield ""
        yield f"incomplete: {num_finished} of {report['num_runs']} runs were measured to their end"
    if any(run["ways"] for run in report["runs"]):
        yield ""
        yield "acceptance length: tokens that each pass of the target yields, its own included"
        yield "mean: of the prompts' own means, with its standard error; pooled: over all passes"


def _prompt_words(report: Mapping[str, Any]) -> str:
    plain, limit = report["plain"], report["max_new_tokens"]
    return (
        f"{plain['num_prompts']}, {plain['num_tokens']} tokens; {plain['num_looping']} answers"
        f" repeat themselves, {plain['num_shorter']} end before {limit} tokens"
    )


def _table(run: Mapping[str, Any]) -> Iterator[str]:
    rows = [_HEADINGS, *(_row(name, way) for name, way in run["ways"].items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells).rstrip()


def _row(name: str, way: Mapping[str, Any]) -> Sequence[str]:
    every = way["acceptance"]["all"]
    lossless = way["lossless"]
    return (
        name,
        _with_error(every["mean"], every["standard_error"]),
        _or_dash(every["pooled"], ".3f"),
        *(_group(way["acceptance"][group]) for group in ("not_looping", "looping")),
        _or_dash(way["speed_up"], ".2f"),
        "sampled" if lossless is None else _lossless_words(lossless),
    )


def _with_error(mean: float, error: float) -> str:
    return _or_dash(mean, ".3f") if math.isnan(error) else f"{mean:.3f} +- {error:.3f}"


def _or_dash(value: float, form: str) -> str:
    """Put a figure into words; what was not measured is nan."""
    return "-" if math.isnan(value) else format(value, form)


def _group(acceptance: Mapping[str, Any]) -> str:
    if not acceptance["num_prompts"]:
        return "-"
    return f"{acceptance['mean']:.3f} ({acceptance['num_prompts']})"


def _lossless_words(lossless: Mapping[str, Any]) -> str:
    words = f"{lossless['num_equal']} of {lossless['num_prompts']} equal"
    gaps = [abs(one["logit_gap"]) for one in lossless["divergences"]]
    return f"{words}; logits apart by at most {max(gaps):.3g}" if gaps else words


def _chart(way: Mapping[str, Any]) -> Iterator[str]:
    """Draw the chain's histogram."""
    every = way["acceptance"]["all"]
    positions = ", ".join(f"{share:.1%}" for share in every["per_position"])
    yield f"  accepted up to position 1, 2, ...: {positions}"
    total = max(1, every["num_rounds"])
    for given, count in enumerate(every["histogram"], start=1):
        share = count / total
        yield f"  {given:>3} tokens  {share:>6.1%}  {'#' * round(share * _BAR_WIDTH)}".rstrip()
