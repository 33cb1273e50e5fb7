"""Answers of a target with a finished drafter, shown while they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from train.acceptance import tokens_per_second
from train.decode import Decoder, Decoding, Limits
from train.drafting import Alone, Chain, Tree
from train.sampling import Sampler
from train.target import computing_in
from train.trained import load_drafter, load_target_of, tokenised

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from train.config import TargetConfig
    from train.drafting import Strategy
    from train.questions import Question
    from train.reference import Reference
    from train.target import Target

_NOT_YET = "\N{REPLACEMENT CHARACTER}"
_WARM_UP_TOKENS = 3


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """What to answer, and how.

    Attributes:
        reference: The drafter.
        target: Its target.
        questions: The prompts.
        tree_budget: Draft tokens per tree; None drafts chains.
        max_new_tokens: Tokens per answer at most.
        temperature: 0 is greedy.
        seed: Of the sampling.
        device: As `train.device` in a run file.
        dtype: `target`, `float32` or `bfloat16`: what to compute in.
        compares: Let the target answer alone as well, which gives the speed-up.
    """

    reference: Reference
    target: TargetConfig
    questions: Sequence[Question]
    tree_budget: int | None
    max_new_tokens: int
    temperature: float
    seed: int
    device: str
    dtype: str
    compares: bool


class TextStream:
    """Turns tokens into text piece by piece; a character may be made of several tokens.

    Args:
        tokenizer: The target's.
        write: Takes each piece.
    """

    def __init__(self, tokenizer: Any, write: Callable[[str], None]) -> None:
        self._tokenizer = tokenizer
        self._write = write
        self._tokens: list[int] = []
        self._num_written = 0

    def add(self, tokens: Sequence[int]) -> None:
        """Write what is certain by now."""
        self._tokens += tokens
        text = self._text()
        if not text.endswith(_NOT_YET):
            self._write(text[self._num_written :])
            self._num_written = len(text)

    def close(self) -> None:
        """Write the rest."""
        self._write(self._text()[self._num_written :])

    def _text(self) -> str:
        text: str = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
        return text


def generate(request: GenerationRequest, *, write: Callable[[str], None]) -> None:
    """Answer each prompt in turn, and write text and figures.

    Raises:
        ConfigError: The checkpoint or the target cannot be loaded, or they do not fit.
    """
    drafter = load_drafter(request.reference.checkpoint)
    config = request.target
    if request.dtype == "bfloat16":
        config = msgspec.structs.replace(config, dtype="bfloat16")
    target = load_target_of(drafter, config, device=request.device)
    with computing_in(target, "float32" if request.dtype == "float32" else "target"):
        drafter = drafter.to(target.device, target.dtype)
        budget = request.tree_budget
        strategy: Strategy = Tree(drafter, budget) if budget else Chain(drafter)
        prompts = tokenised(request.questions, target)
        for way in (strategy, Alone()):  # what is first of its kind is slow
            _answer(target, prompts[0].ids, way, request, limit=_WARM_UP_TOKENS)
        for prompt in prompts:
            if len(prompts) > 1:
                write(f"== {prompt.id}\n")
            stream = TextStream(target.tokenizer, write)
            drafted = _answer(target, prompt.ids, strategy, request, stream=stream)
            stream.close()
            plain = _answer(target, prompt.ids, Alone(), request) if request.compares else None
            write(f"\n\n[{words(drafted, plain, is_greedy=request.temperature == 0)}]\n")


@torch.no_grad()
def _answer(
    target: Target,
    ids: list[int],
    strategy: Strategy,
    request: GenerationRequest,
    *,
    stream: TextStream | None = None,
    limit: int | None = None,
) -> Decoding:
    """Decode one prompt, and hand on what is new after each round."""
    limits = Limits(limit or request.max_new_tokens, {target.eos_id})
    generator = torch.Generator(target.device).manual_seed(request.seed)
    sampler = Sampler(request.temperature, generator)
    decoder = Decoder(target, [ids], strategy=strategy, limits=limits, sampler=sampler)
    shown = stream.add if stream else lambda _: None
    shown(decoder.decodings()[0].tokens)
    while not decoder.is_done:
        shown(decoder.step()[0])
    return decoder.decodings()[0]


def words(drafted: Decoding, plain: Decoding | None, *, is_greedy: bool) -> str:
    """Put the figures of an answer into words."""
    told = f"{len(drafted.tokens)} tokens"
    if not drafted.rounds:
        return told
    told += f" in {len(drafted.rounds)} passes, acceptance length {drafted.acceptance_length:.2f}"
    speed = tokens_per_second([drafted])
    told += f", {speed:.1f} tokens/s"
    if plain is None:
        return told
    told += f", {speed / tokens_per_second([plain]):.2f} times as fast as the target alone"
    if not is_greedy:
        return told
    is_same = drafted.tokens == plain.tokens
    return f"{told}, {'the same' if is_same else 'NOT the same'} text"
