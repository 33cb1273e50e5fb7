"""Tell text that repeats itself; imports no torch."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOOP_NGRAM_TOKENS = 8
LOOP_NGRAM_REPEATS = 3
LOOP_LINE_REPEATS = 4


def is_looping(ids: Sequence[int], text: str) -> bool:
    """Return whether an answer repeats itself too much to teach anything.

    Args:
        ids: Its tokens; `LOOP_NGRAM_REPEATS` equal runs of `LOOP_NGRAM_TOKENS` are too many.
        text: The same as text; `LOOP_LINE_REPEATS` equal lines, numbers apart, are too many.
    """
    num_ngrams = len(ids) - LOOP_NGRAM_TOKENS + 1
    ngrams = Counter(tuple(ids[i : i + LOOP_NGRAM_TOKENS]) for i in range(num_ngrams))
    if any(count >= LOOP_NGRAM_REPEATS for count in ngrams.values()):
        return True
    lines = Counter(re.sub(r"\A[^A-Za-z]+", "", line) for line in text.splitlines())
    del lines[""]
    return any(count >= LOOP_LINE_REPEATS for count in lines.values())


def tokens_before_loop(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> int:
    """Return how many first tokens of an answer do not repeat themselves too much yet.

    Args:
        ids: Tokens of the answer.
        decode: From tokens to text.
    """

    def loops(num_tokens: int) -> bool:
        return is_looping(ids[:num_tokens], decode(ids[:num_tokens]))

    return bisect_left(range(1, len(ids) + 1), 1, key=loops)
