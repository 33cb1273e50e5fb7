"""What a target does between its token ids and its first layer, and between its head and logits.

Many targets scale their embeddings there, or scale and cap their logits. Their configurations name
the numbers, but not what is done with them: one family divides by what another multiplies with, and
some scale inside the embedding module, depending on the version of transformers. So the ways that
the numbers could be meant are tried, and the one that gives what the target itself gives is kept.

Shape suffixes: T tokens, D hidden size, V vocabulary. `...` stands for any leading dimensions.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

NUM_PROBED_TOKENS = 16
SAME = 0.02
"""Relative difference up to which two tensors are the same but for bfloat16's rounding."""


@dataclass(frozen=True)
class Ends:
    """What the embedding's and the head's outputs go through.

    Attributes:
        embedding_scale: Multiplies embeddings.
        logit_scale: Multiplies logits.
        logit_cap: Then bounds them, smoothly, to +- this; None leaves them.
    """

    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float | None = None

    def embedded(self, embedding_D: Tensor) -> Tensor:
        """Return what the first layer gets for an output of the embedding, [..., D]."""
        return _scaled(embedding_D, self.embedding_scale)

    def logits(self, headed_V: Tensor) -> Tensor:
        """Return the logits [..., V] for an output of the head."""
        logits_V = _scaled(headed_V, self.logit_scale)
        if self.logit_cap is None:
            return logits_V
        return (logits_V / self.logit_cap).tanh() * self.logit_cap


@torch.no_grad()
def ends_of(model: Any) -> Ends:
    """Find what a target does at its two ends.

    Args:
        model: A causal language model of transformers.

    Returns:
        What explains a forward pass over a few tokens best; nothing is done, where nothing that
        the configuration names explains it. The start-up self-test refuses such a target.
    """
    config = model.config.get_text_config()
    ids_1T = torch.linspace(0, config.vocab_size - 1, NUM_PROBED_TOKENS).long()[None]
    ids_1T = ids_1T.to(model.device)
    output = model(input_ids=ids_1T, output_hidden_states=True, use_cache=False)
    embedding_1TD = model.get_input_embeddings()(ids_1T)
    scale = _best(
        [Ends(embedding_scale=one) for one in embedding_scales(config)],
        lambda ends: ends.embedded(embedding_1TD),
        output.hidden_states[0],
    ).embedding_scale
    headed_1TV = model.get_output_embeddings()(output.hidden_states[-1])
    caps = dict.fromkeys((None, _number(config, "final_logit_softcapping")))
    return _best(
        [
            Ends(embedding_scale=scale, logit_scale=logit_scale, logit_cap=cap)
            for logit_scale, cap in itertools.product(logit_scales(config), caps)
        ],
        lambda ends: ends.logits(headed_1TV),
        output.logits,
    )


def embedding_scales(config: Any) -> list[float]:
    """Return what a configuration may mean its embeddings to be multiplied with, 1 first.

    Gemma multiplies with the root of the hidden size, which its configuration does not name.
    """
    named = (_number(config, name) for name in ("embedding_multiplier", "scale_emb"))
    return [1.0, *filter(None, named), float(config.hidden_size) ** 0.5]


def logit_scales(config: Any) -> list[float]:
    """Return what a configuration may mean its logits to be multiplied with, 1 first."""
    names = ("logits_scaling", "logit_scale", "lm_head_multiplier")
    named = list(filter(None, (_number(config, name) for name in names)))
    return [1.0, *named, *(1.0 / one for one in named)]


def relative_difference(found: Tensor, wanted: Tensor) -> float:
    """Return the norm of the difference over the norm of what is wanted."""
    found, wanted = found.float(), wanted.float()
    return float((found - wanted).norm() / wanted.norm())


def _best(candidates: Sequence[Ends], outcome: Callable[[Ends], Tensor], wanted: Tensor) -> Ends:
    """Return the first of the candidates whose outcome is nearest; the first if none is near."""
    difference = {ends: relative_difference(outcome(ends), wanted) for ends in candidates}
    nearest = min(candidates, key=difference.__getitem__)
    return nearest if difference[nearest] < SAME else candidates[0]


def _number(config: Any, name: str) -> float | None:
    """Return a number of a configuration; None where it is not set."""
    value = getattr(config, name, None)
    return None if value is None else float(value)


def _scaled(x: Tensor, scale: float) -> Tensor:
    return x if scale == 1.0 else x * scale
