"""Find texts that say almost the same; imports no torch."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

SHINGLE_WORDS = 3
ALIKE_SHARE = 0.5


def normalised(text: str) -> str:
    """Return the words of any script in lower case, one space between them."""
    return " ".join(re.findall(r"\w+", text.lower()))


def shingles(text: str) -> frozenset[str]:
    """Return all runs of `SHINGLE_WORDS` words; of a shorter text, the whole of it."""
    words = normalised(text).split()
    num_runs = max(1, len(words) - SHINGLE_WORDS + 1)
    return frozenset(" ".join(words[i : i + SHINGLE_WORDS]) for i in range(num_runs))


class NearDuplicates:
    """Texts that others are compared with.

    Two texts are alike when they share more than `ALIKE_SHARE` of the shorter one's runs of words,
    so that a text and a longer one that quotes it are alike too.
    """

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._places: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, text: str) -> None:
        """Compare with this text from now on."""
        runs = shingles(text)
        for run in runs:
            self._places[run].append(len(self._sizes))
        self._sizes.append(len(runs))

    def holds_alike(self, text: str) -> bool:
        """Return whether some text is alike."""
        runs = shingles(text)
        shared = Counter(place for run in runs for place in self._places.get(run, ()))
        return any(
            count > ALIKE_SHARE * min(len(runs), self._sizes[place])
            for place, count in shared.items()
        )
