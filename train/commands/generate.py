"""Answer prompts with a finished drafter and its target, and show what the drafter is worth.

Text is shown while it is written; then follow the acceptance length, which is the mean number of
tokens that each pass of the target yields, its own included, and the speed-up over the target
alone, which answers once more without a drafter.

Exit codes: 0 answered; 2 a file or an argument cannot be used; 130 stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from train.commands.arguments import add_decoding_arguments, positive, tree_budget
from train.exit_codes import ExitCode
from train.questions import question_of, read_questions
from train.reference import resolve

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what it takes."""
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="run folder or checkpoint folder")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--prompt", metavar="TEXT", help="what a user asks")
    asked.add_argument("--prompts", metavar="FILE", help="as data.held_out in a run file")
    add("--num-prompts", type=positive, metavar="N", help="the first N prompts; default: all")
    add("--tree-budget", type=tree_budget, metavar="N", help="draft trees of N tokens (DDTree)")
    add("--no-plain", action="store_true", help="leave out the target alone, and the speed-up")
    add_decoding_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Check the files, then load torch and answer."""
    reference = resolve(options.run, best=options.best)
    target = reference.target(options.target, eos_token_id=options.eos_token_id)
    if options.prompt is not None:
        questions = [question_of(options.prompt)]
    else:
        questions = read_questions(options.prompts, limit=options.num_prompts)
    from train.generation import GenerationRequest, generate  # noqa: PLC0415  imports torch

    request = GenerationRequest(
        reference=reference,
        target=target,
        questions=questions,
        tree_budget=options.tree_budget,
        max_new_tokens=options.max_new_tokens,
        temperature=options.temperature,
        seed=options.seed,
        device=options.device,
        dtype=options.dtype,
        compares=not options.no_plain,
    )
    generate(request, write=show)
    return ExitCode.OK


def show(text: str) -> None:
    """Write to stdout at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
