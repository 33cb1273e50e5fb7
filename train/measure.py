"""Prompts decoded with one strategy after the other, to measure what a drafter is worth.

All prompts are decoded side by side, which does not change what is accepted. Speed is measured one
text at a time, on the first prompts, as somebody who waits for an answer meets it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from train.decode import Decoder, Decoding, Limits
from train.divergence import first_divergence
from train.drafting import Alone
from train.looping import is_looping
from train.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.drafting import Strategy
    from train.progress import Progress
    from train.target import Target
    from train.trained import Prompt


_WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Terms:
    """How to measure.

    Attributes:
        max_new_tokens: Tokens per answer at most.
        batch: Prompts that are decoded side by side.
        num_timed: Prompts that are decoded alone for the speed; 0 measures none.
        temperature: 0 is greedy.
        seed: Of the sampling; without meaning when greedy.
    """

    max_new_tokens: int
    batch: int
    num_timed: int
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """Answers to all prompts, in their order.

    Attributes:
        answers: Decoded side by side.
        timed: The first prompts again, each alone.
    """

    answers: list[Decoding]
    timed: list[Decoding]


@dataclass(frozen=True)
class _Part:
    """Prompts that are decoded at once, for the progress line.

    Attributes:
        name: What is decoded.
        first: Prompts before them.
        total: Prompts in all.
    """

    name: str
    first: int
    total: int

    def words(self, decoder: Decoder, num_prompts: int) -> str:
        """Tell how far all prompts are."""
        share = (self.first + num_prompts * decoder.share_done) / self.total
        num_done = self.first + decoder.num_done
        return f"{self.name}: {share:.0%}, {num_done} of {self.total} prompts answered"


class Meter:
    """Decodes the same prompts with one strategy after the other.

    Args:
        target: The target, in the dtype to compute in.
        prompts: What to answer.
        terms: How to measure.
        progress: Told how far it is.
    """

    def __init__(
        self, target: Target, prompts: Sequence[Prompt], *, terms: Terms, progress: Progress
    ) -> None:
        self.target = target
        self.prompts = prompts
        self.terms = terms
        self._progress = progress
        self._limits = Limits(terms.max_new_tokens, {target.eos_id})

    def measure(self, strategy: Strategy, *, name: str) -> Measured:
        """Decode everything."""
        ids = [prompt.ids for prompt in self.prompts]
        batch = self.terms.batch
        answers: list[Decoding] = []
        for first in range(0, len(ids), batch):
            part = _Part(name, first, len(ids))
            answers += self._decode(ids[first : first + batch], strategy, part=part)
        # The first decoding of a kind loads kernels and grows memory: not timed.
        timed = ids[: self.terms.num_timed]
        if timed:
            few = Limits(min(_WARM_UP_TOKENS, self.terms.max_new_tokens), self._limits.stop_ids)
            part = _Part(f"{name}, warming up", 0, 1)
            self._decode(timed[:1], strategy, part=part, limits=few)
        alone: list[Decoding] = []
        for index, one in enumerate(timed):
            part = _Part(f"{name}, one at a time", index, len(timed))
            alone += self._decode([one], strategy, part=part)
        return Measured(answers, alone)

    def divergences(self, measured: Measured, plain: Measured) -> list[dict[str, Any]]:
        """Return where greedy answers are not the target's own, with the logits' gap there."""
        found = []
        pairs = zip(self.prompts, measured.answers, plain.answers, strict=True)
        for prompt, one, own in pairs:
            where = first_divergence(self.target, prompt.ids, plain=own.tokens, other=one.tokens)
            if where is not None:
                found.append({"id": prompt.id, **asdict(where)})
        return found

    def is_looping(self, answer: Decoding) -> bool:
        """Return whether an answer repeats itself."""
        tokens = [token for token in answer.tokens if token != self.target.eos_id]
        return is_looping(tokens, self.target.tokenizer.decode(tokens))

    @torch.no_grad()
    def _decode(
        self,
        ids: list[list[int]],
        strategy: Strategy,
        *,
        part: _Part,
        limits: Limits | None = None,
    ) -> list[Decoding]:
        device = self.target.device
        generator = torch.Generator(device).manual_seed(self.terms.seed + part.first)
        decoder = Decoder(
            self.target,
            ids,
            strategy=strategy,
            limits=limits or self._limits,
            sampler=Sampler(self.terms.temperature, generator),
        )
        while not decoder.is_done:
            decoder.step()
            self._progress.update(part.words(decoder, len(ids)))
        return decoder.decodings()


def measure_alone(meter: Meter) -> Measured:
    """Decode with the target alone."""
    return meter.measure(Alone(), name="target alone")
