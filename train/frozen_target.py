"""What the algorithm needs of the frozen target model.

Shape suffixes: B sequences, T tokens, S keys, D target hidden size, F = tapped layers * D, V
vocabulary. `...` stands for any leading dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import Cache


@dataclass(frozen=True)
class TargetStates:
    """What one forward pass of the target leaves for the drafter.

    Attributes:
        final_BTD: States after the target's final norm: what `FrozenTarget.logits` takes.
        tapped_BTF: Outputs of the tapped decoder layers, concatenated in the order of their ids.
    """

    final_BTD: Tensor
    tapped_BTF: Tensor


@dataclass(frozen=True)
class View:
    """Where tokens stand and what each sees, where it is not all that comes before it.

    Keys are the S entries that the cache returns for the call; without one, the T tokens.

    Attributes:
        positions_BT: Position of each token that is read, within its own text.
        visible_BTS: True where a token sees a key; each sees at least itself.
        key_positions_BS: Position of each key, for layers with a sliding window.
    """

    positions_BT: Tensor
    visible_BTS: Tensor
    key_positions_BS: Tensor


class FrozenTarget(Protocol):
    """A target whose parameters receive no gradient.

    Gradients do flow *through* `logits` into its argument: that is how the drafter learns.
    """

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        ...

    def embed(self, ids_BT: Tensor) -> Tensor:
        """Return the input embeddings [..., D], scaled as the target itself scales them."""
        ...

    def logits(self, final_D: Tensor) -> Tensor:
        """Return the logits [..., V] of states [..., D], with the target's own scale and caps."""
        ...

    def states(
        self, ids_BT: Tensor, *, cache: Cache | None = None, view: View | None = None
    ) -> TargetStates:
        """Run the decoder without gradient.

        Args:
            ids_BT: Token ids; with a cache they continue what the cache holds.
            cache: Keys and values of earlier tokens, extended in place; None for a full sequence.
            view: Positions and visibility; None means one after the other, each seeing all before.
        """
        ...
