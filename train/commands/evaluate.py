"""Decode held-out prompts with finished drafters and their target: acceptance and speed-up.

Takes one run or checkpoint, or several of the same target, say of three seeds: the target alone
then decodes once for all. Acceptance length is the mean number of tokens that each pass of the
target yields, its own included, so a drafter that is never right has 1.

Each run's table is printed as soon as it is measured. Whatever ends the command before its time,
the figures that it has come out, marked as incomplete (JSON: "state").

Exit codes: 0 measured; 2 a file or an argument cannot be used; 7 no space is left; 130
stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from train.commands.arguments import (
    add_decoding_arguments,
    non_negative,
    positive,
    require_place,
    tree_budget,
)
from train.exit_codes import ExitCode
from train.questions import read_questions
from train.reference import resolve, shared_target
from train.settings import ConfigError

if TYPE_CHECKING:
    import argparse

    from train.reference import Reference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what it takes."""
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="run folder or checkpoint folder")
    add(
        "--prompts",
        metavar="FILE",
        help="as data.held_out in a run file; default: that of the run",
    )
    add("--num-prompts", type=positive, metavar="N", help="the first N prompts; default: all")
    add(
        "--tree-budget",
        type=tree_budget,
        nargs="+",
        default=[],
        metavar="N",
        help="decode with trees of N drafts as well (DDTree), for each N",
    )
    add("--batch", type=positive, default=32, metavar="N", help="prompts side by side (32)")
    add(
        "--timed-prompts",
        type=non_negative,
        default=8,
        metavar="N",
        help="prompts decoded again one at a time, for the speed-up; 0: none (8)",
    )
    add("--json", type=Path, metavar="FILE", help="write all figures there as well, as they come")
    add("--format", choices=("text", "json"), default="text", help="what stdout gets (text)")
    add_decoding_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Check the files, then load torch and measure."""
    references = [resolve(path, best=options.best) for path in options.runs]
    target = shared_target(references, options.target, eos_token_id=options.eos_token_id)
    prompts = options.prompts or held_out_of(references[0])
    questions = read_questions(prompts, limit=options.num_prompts)
    if options.json:
        require_place(options.json, option="--json")
    from train.evaluation import EvaluationRequest, evaluate  # noqa: PLC0415  imports torch
    from train.evaluation_output import EvaluationOutput  # noqa: PLC0415  same
    from train.measure import Terms  # noqa: PLC0415  same

    terms = Terms(
        max_new_tokens=options.max_new_tokens,
        batch=options.batch,
        num_timed=options.timed_prompts,
        temperature=options.temperature,
        seed=options.seed,
    )
    request = EvaluationRequest(
        references=references,
        target=target,
        questions=questions,
        tree_budgets=options.tree_budget,
        terms=terms,
        device=options.device,
        dtype=options.dtype,
    )
    with EvaluationOutput(file=options.json, as_json=options.format == "json") as output:
        for report in evaluate(request):
            output.take({"prompts_file": prompts, **report})
    return ExitCode.OK


def held_out_of(reference: Reference) -> str:
    """Return the run's own held-out data.

    Raises:
        ConfigError: No run tells which it is.
    """
    if reference.run is None:
        raise ConfigError([f"{reference.given}: no run tells its held-out data; wanted --prompts"])
    return reference.run.data.held_out
