"""Several finished drafters of one target, measured on the same prompts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from train.drafting import Chain, Tree
from train.evaluation_figures import report_plain, report_strategy, spread
from train.machine import machine_summary
from train.measure import Meter, measure_alone
from train.progress import Progress
from train.target import computing_in
from train.trained import load_drafter, load_target_of, require_fit, tokenised

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from train.config import TargetConfig
    from train.drafter import Drafter
    from train.drafting import Strategy
    from train.measure import Measured, Terms
    from train.questions import Question
    from train.reference import Reference

SCHEMA_VERSION = 1
FINISHED = "finished"
INCOMPLETE = "incomplete"


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """What to measure.

    Attributes:
        references: The drafters, at least one.
        target: Their target.
        questions: The prompts, at least one.
        tree_budgets: Draft tokens per tree, for each way beside the chain.
        terms: How to measure.
        device: As `train.device` in a run file.
        dtype: `target`, `float32` or `bfloat16`: what to compute in.
    """

    references: Sequence[Reference]
    target: TargetConfig
    questions: Sequence[Question]
    tree_budgets: Sequence[int]
    terms: Terms
    device: str
    dtype: str


def evaluate(request: EvaluationRequest) -> Iterator[dict[str, Any]]:
    """Measure, and yield all figures so far: after the target alone, and after each way.

    The last document's `state` is `finished`; whoever is interrupted before has an `incomplete` one
    with what was measured until then.

    Raises:
        ConfigError: A checkpoint or the target cannot be loaded, or they do not fit.
    """
    progress = Progress(every_seconds=5.0)
    drafters = [load_drafter(one.checkpoint) for one in request.references]
    progress.say(f"loading {request.target.path}")
    config = request.target
    if request.dtype == "bfloat16":
        config = msgspec.structs.replace(config, dtype="bfloat16")
    target = load_target_of(drafters[0], config, device=request.device)
    for drafter in drafters[1:]:
        require_fit(drafter, target)
    # To float32 only while decoding: what the target knows stays what the drafter learned from.
    with computing_in(target, "float32" if request.dtype == "float32" else "target"):
        meter = Meter(
            target, tokenised(request.questions, target), terms=request.terms, progress=progress
        )
        plain = measure_alone(meter)
        header = _header(request, meter, plain)
        runs: list[dict[str, Any]] = []
        progress.clear()
        yield _document(header, runs, request=request)
        for reference, drafter in zip(request.references, drafters, strict=True):
            runs.append(_run(reference, block_size=drafter.config.block_size))
            # The files hold bfloat16, so that a narrower drafter loses nothing.
            ready = drafter.to(target.device, target.dtype)
            ways = _ways(ready, request.tree_budgets)
            for name, strategy in ways.items():
                measured = meter.measure(strategy, name=f"{reference.given}, {name}")
                block_size = drafter.config.block_size
                report = report_strategy(meter, measured, plain, block_size=block_size)
                runs[-1]["ways"][name] = report
                if len(runs[-1]["ways"]) == len(ways):
                    runs[-1]["state"] = FINISHED
                progress.clear()
                yield _document(header, runs, request=request)


def _header(request: EvaluationRequest, meter: Meter, plain: Measured) -> dict[str, Any]:
    """Return what is known once the target alone has been measured."""
    answers = zip(meter.prompts, plain.answers, strict=True)
    return {
        "schema_version": SCHEMA_VERSION,
        "target": request.target.path,
        "dtype": str(meter.target.dtype).removeprefix("torch."),
        "machine": machine_summary(meter.target.device),
        **asdict(request.terms),
        "plain": report_plain(meter, plain),
        "prompts": [
            {"id": prompt.id, "num_tokens": len(one.tokens), "is_looping": meter.is_looping(one)}
            for prompt, one in answers
        ],
    }


def _document(
    header: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], *, request: EvaluationRequest
) -> dict[str, Any]:
    """Return the figures of what has been measured, and whether that is all."""
    whole = [run for run in runs if run["state"] == FINISHED]
    names = whole[0]["ways"] if whole else ()
    return {
        "state": FINISHED if len(whole) == len(request.references) else INCOMPLETE,
        "num_runs": len(request.references),
        **header,
        "runs": [{**run, "ways": dict(run["ways"])} for run in runs],
        "spread": {name: spread([run["ways"][name] for run in whole]) for name in names},
    }


def _run(reference: Reference, *, block_size: int) -> dict[str, Any]:
    """Return the entry of a drafter of which nothing has been measured yet."""
    return {
        "state": INCOMPLETE,
        "run": str(reference.given),
        "checkpoint": str(reference.checkpoint),
        "name": reference.run.name if reference.run else None,
        "seed": reference.run.train.seed if reference.run else None,
        "block_size": block_size,
        "ways": {},
    }


def _ways(drafter: Drafter, tree_budgets: Sequence[int]) -> dict[str, Strategy]:
    """Return every way of proposing by its name."""
    return {"chain": Chain(drafter)} | {
        f"tree-{budget}": Tree(drafter, budget) for budget in tree_budgets
    }
