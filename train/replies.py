"""Let the target continue many prompts at once, in batches that stay full.

Rows end at different lengths. A round of the batch ends when only a quarter of its rows still
write; those go on in the next round beside new ones, with what they have written so far as part of
their prompt. So the device seldom works for a few stragglers, and every row is read at most a few
times over.

Shape suffixes: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria

from train.settings import ConfigError

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from torch import Tensor

    from train.target import Target

CARRIED_SHARE = 4
"""One in so many rows of a batch may still write when its round ends."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Args:
        temperature: Divides the logits; 0 always takes the most likely token.
        top_p: Share of the probability to choose from, the likeliest tokens first; 1 is all.
        seed: The run's seed; each row draws from this, its key and its part alone.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Request:
    """Something to continue.

    Args:
        key: Names the row, in a way that is the same in every run.
        prompt_ids: Its tokens.
        part: Counts the continuations of one row.
    """

    key: Hashable
    prompt_ids: tuple[int, ...]
    part: int = 0


@dataclass(frozen=True)
class Reply:
    """What the target wrote.

    Args:
        request: For which prompt.
        ids: New tokens, without the end-of-turn token.
        ended: False when the limit of tokens cut it off.
    """

    request: Request
    ids: list[int]
    ended: bool


@dataclass
class _Row:
    """A reply in the making."""

    request: Request
    uniform_T: Tensor
    ids: list[int] = field(default_factory=list)


class ReplyWriter:
    """Writes replies, many at a time.

    Args:
        target: Writes; the generation settings that its folder came with are not used.
        batch: Rows at once; halved, for good, when they do not fit in the device's memory.
        max_new_tokens: Tokens of a reply, its end included.
        sampling: How tokens are chosen.
        on_token: Called after each token of the batch with the number of rows that still write.
    """

    def __init__(
        self,
        target: Target,
        *,
        batch: int,
        max_new_tokens: int,
        sampling: Sampling,
        on_token: Callable[[int], None],
    ) -> None:
        self._target = target
        # What a folder says of sampling and penalties would fill in what is not set here.
        target.model.generation_config = generation_config()
        self._batch = batch
        self._max_new_tokens = max_new_tokens
        self._sampling = sampling
        self._on_token = on_token

    def run(self, waiting: deque[Request]) -> Iterator[list[Reply]]:
        """Yield finished replies, a round at a time, until nothing waits.

        Args:
            waiting: Taken from the left as rows become free; the caller may append in between.

        Raises:
            ConfigError: The device's memory does not hold a single row.
        """
        rows: list[_Row] = []
        while waiting or rows:
            while waiting and len(rows) < self._batch:
                request = waiting.popleft()
                rows.append(_Row(request, self._uniform(request)))
            try:
                new_ids = self._round(rows, may_carry=bool(waiting))
            except torch.OutOfMemoryError as error:
                if len(rows) == 1:
                    raise ConfigError(["--batch: one row alone is too large"]) from error
                self._batch = len(rows) // 2
                surplus = rows[self._batch :]
                rows = rows[: self._batch]
                # Begun replies are begun again: what a row draws does not depend on its company.
                waiting.extendleft(row.request for row in reversed(surplus))
                continue
            finished, rows = self._sort(rows, new_ids)
            yield finished

    def _uniform(self, request: Request) -> Tensor:
        """Draw the random numbers of a row's tokens, in [0, 1)."""
        name = repr((self._sampling.seed, request.key, request.part)).encode()
        seed = int.from_bytes(hashlib.blake2b(name, digest_size=4).digest(), "little")
        generator = torch.Generator().manual_seed(seed)
        return torch.rand(self._max_new_tokens, generator=generator, dtype=torch.float64)

    def _round(self, rows: Sequence[_Row], *, may_carry: bool) -> list[list[int]]:
        """Return new tokens of each row, with filling behind its end."""
        prompts = [[*row.request.prompt_ids, *row.ids] for row in rows]
        width = max(map(len, prompts))
        input_ids_BT = torch.full((len(rows), width), self._target.eos_id)
        attention_mask_BT = torch.zeros_like(input_ids_BT)
        for place, ids in enumerate(prompts):
            # Left padding: every row continues from the last column.
            input_ids_BT[place, width - len(ids) :] = torch.tensor(ids)
            attention_mask_BT[place, width - len(ids) :] = 1
        device = self._target.device
        limits = [self._max_new_tokens - len(row.ids) for row in rows]
        end = _RoundEnd(
            torch.tensor(limits, device=device),
            width=width,
            eos_id=self._target.eos_id,
            num_carried=len(rows) // CARRIED_SHARE if may_carry else 0,
            on_token=self._on_token,
        )
        output_BT: Tensor = self._target.model.generate(
            input_ids=input_ids_BT.to(device),
            attention_mask=attention_mask_BT.to(device),
            generation_config=generation_config(
                max_new_tokens=max(limits),
                do_sample=False,
                eos_token_id=self._target.eos_id,
                pad_token_id=self._target.eos_id,
            ),
            logits_processor=self._draws(rows, width=width),
            stopping_criteria=[end],
        )
        new_ids: list[list[int]] = output_BT[:, width:].tolist()
        return [ids[:limit] for ids, limit in zip(new_ids, limits, strict=True)]

    def _draws(self, rows: Sequence[_Row], *, width: int) -> list[_Draw]:
        if self._sampling.temperature == 0.0:
            return []
        uniform_BT = torch.stack([row.uniform_T.roll(-len(row.ids)) for row in rows])
        return [_Draw(uniform_BT.to(self._target.device), width=width, sampling=self._sampling)]

    def _sort(
        self, rows: Sequence[_Row], new_ids: Sequence[list[int]]
    ) -> tuple[list[Reply], list[_Row]]:
        """Return the finished replies, and the rows that go on."""
        finished, unfinished = [], []
        for row, ids in zip(rows, new_ids, strict=True):
            written = list(itertools.takewhile(lambda one: one != self._target.eos_id, ids))
            row.ids += written
            ended = len(written) < len(ids)
            if ended or len(row.ids) == self._max_new_tokens:
                finished.append(Reply(row.request, ids=row.ids, ended=ended))
            else:
                unfinished.append(row)
        return finished, unfinished


def generation_config(**settings: Any) -> Any:
    """Return settings of transformers' generation; what is not given is at its default."""
    config: Any = GenerationConfig
    return config(**settings)


class _RoundEnd(StoppingCriteria):
    """Ends a row at its own limit, and the round when few rows are left."""

    def __init__(
        self,
        limit_B: Tensor,
        *,
        width: int,
        eos_id: int,
        num_carried: int,
        on_token: Callable[[int], None],
    ) -> None:
        self._limit_B = limit_B
        self._width = width
        self._eos_id = eos_id
        self._num_carried = num_carried
        self._on_token = on_token
        self._is_done_B = torch.zeros_like(limit_B, dtype=torch.bool)

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:  # noqa: ARG002
        num_new = input_ids.shape[1] - self._width
        self._is_done_B |= (input_ids[:, -1] == self._eos_id) | (num_new >= self._limit_B)
        num_writing = int((~self._is_done_B).sum())
        self._on_token(num_writing)
        if num_writing <= self._num_carried:
            return torch.ones_like(self._is_done_B)
        return self._is_done_B


class _Draw(LogitsProcessor):
    """Leaves one token possible, drawn from each row's own random numbers."""

    def __init__(self, uniform_BT: Tensor, *, width: int, sampling: Sampling) -> None:
        self._uniform_BT = uniform_BT
        self._width = width
        self._sampling = sampling

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        num_new = input_ids.shape[1] - self._width
        uniform_B1 = self._uniform_BT[:, num_new, None]
        chosen_B1 = draw(scores, uniform_B1=uniform_B1, sampling=self._sampling)
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen_B1, 0.0)


def draw(logits_BV: Tensor, *, uniform_B1: Tensor, sampling: Sampling) -> Tensor:
    """Choose a token of each row by inverting its cumulative distribution.

    Args:
        logits_BV: Any float dtype.
        uniform_B1: Random numbers in [0, 1), float64.
        sampling: `temperature` is above 0.

    Returns:
        Token ids [B, 1].
    """
    share_BV = (logits_BV.float() / sampling.temperature).softmax(dim=-1)
    order_BV = None
    if sampling.top_p < 1.0:
        share_BV, order_BV = share_BV.sort(dim=-1, descending=True, stable=True)
    cumulative_BV = share_BV.double().cumsum(dim=-1)
    total_B1 = cumulative_BV[:, -1:]
    if order_BV is not None:
        last_B1 = torch.searchsorted(cumulative_BV, sampling.top_p * total_B1)
        total_B1 = cumulative_BV.gather(1, last_B1)
    # Right: a token of probability 0 has an empty interval, which no number falls into.
    place_B1 = torch.searchsorted(cumulative_BV, uniform_B1 * total_B1, right=True)
    place_B1 = place_B1.clamp(max=logits_BV.shape[1] - 1)
    return place_B1 if order_BV is None else order_BV.gather(1, place_B1)
