"""Several finished drafters of one target, measured on the same prompts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from train.drafting import Chain, Tree
from train.evaluate import computing_in
from train.machine import machine_summary
from train.measure import Meter, measure_alone, report_plain, report_strategy, spread
from train.progress import Progress
from train.trained import load_drafter, load_target_of, require_fit, tokenised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.config import TargetConfig
    from train.drafter import Drafter
    from train.drafting import Strategy
    from train.measure import Measured, Terms
    from train.questions import Question
    from train.reference import Reference

SCHEMA_VERSION = 1


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


def evaluate(request: EvaluationRequest) -> dict[str, Any]:
    """Measure, and return all figures.

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
        prompts = tokenised(request.questions, target)
        meter = Meter(target, prompts, terms=request.terms, progress=progress)
        plain = measure_alone(meter)
        header = {
            "schema_version": SCHEMA_VERSION,
            "target": request.target.path,
            "dtype": str(target.dtype).removeprefix("torch."),
            "machine": machine_summary(target.device),
            **asdict(request.terms),
            "plain": report_plain(meter, plain),
        }
        runs = [
            _run(reference, drafter, meter=meter, plain=plain, tree_budgets=request.tree_budgets)
            for reference, drafter in zip(request.references, drafters, strict=True)
        ]
    spreads = {name: spread([run["ways"][name] for run in runs]) for name in runs[0]["ways"]}
    answers = zip(prompts, plain.answers, strict=True)
    return {
        **header,
        "runs": runs,
        "spread": spreads,
        "prompts": [
            {"id": prompt.id, "num_tokens": len(one.tokens), "is_looping": meter.is_looping(one)}
            for prompt, one in answers
        ],
    }


def _run(
    reference: Reference,
    drafter: Drafter,
    *,
    meter: Meter,
    plain: Measured,
    tree_budgets: Sequence[int],
) -> dict[str, Any]:
    """Measure one drafter in every way of proposing."""
    target, block_size = meter.target, drafter.config.block_size
    # The files hold bfloat16, so that a narrower drafter loses nothing.
    ready = drafter.to(target.device, target.dtype)
    ways: dict[str, Strategy] = {"chain": Chain(ready)}
    ways |= {f"tree-{budget}": Tree(ready, budget) for budget in tree_budgets}
    reports = {}
    for name, strategy in ways.items():
        measured = meter.measure(strategy, name=f"{reference.given}, {name}")
        reports[name] = report_strategy(meter, measured, plain, block_size=block_size)
    return {
        "run": str(reference.given),
        "checkpoint": str(reference.checkpoint),
        "name": reference.run.name if reference.run else None,
        "seed": reference.run.train.seed if reference.run else None,
        "block_size": block_size,
        "ways": reports,
    }
