"""How the next token is chosen from logits.

Shape suffixes: V vocabulary; `...` stands for any leading dimensions.

Source: speculative sampling, arXiv 2211.17192, where the draft has probability 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sampler:
    """Chooses greedily, or at random with a temperature.

    A draft is accepted where it equals the target's own choice, so what is said has exactly the
    target's distribution whatever is drafted.

    Args:
        temperature: 0 takes the most likely token; else logits are divided by it.
        generator: On the logits' device; None takes torch's own.
    """

    temperature: float = 0.0
    generator: torch.Generator | None = None

    def choose(self, logits_V: Tensor) -> Tensor:
        """Return a token [...] for each distribution [..., V]."""
        if self.temperature == 0.0:
            return logits_V.argmax(dim=-1)
        probabilities_V = (logits_V.float() / self.temperature).softmax(dim=-1)
        # The first of exponential clocks rings at i with probability i; unlike `multinomial` it
        # takes any shape and never waits for the device.
        clocks_V = torch.empty_like(probabilities_V).exponential_(generator=self.generator)
        tiny = torch.finfo(torch.float32).tiny
        return (probabilities_V / clocks_V.clamp_(min=tiny)).argmax(dim=-1)
