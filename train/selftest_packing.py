"""Prove that a target keeps packed conversations apart, before any is trained on.

Shape suffixes: T tokens, F = tapped layers * hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from train.packing import documents_view
from train.selftest import MAX_TOKENS, RELATIVE_TOLERANCE, SelfTestError, difference_beyond

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.target import Target


def check_packing(target: Target, rows: Sequence[Sequence[int]]) -> None:
    """Compare two conversations in one row with each alone.

    Args:
        target: The loaded target.
        rows: Token ids of two conversations; a few of their first tokens are used.

    Raises:
        SelfTestError: The architecture does not heed the mask, as those without attention do not.
    """
    documents = [list(ids[:MAX_TOKENS]) for ids in rows]
    ids_1T = torch.tensor([[token for ids in documents for token in ids]], device=target.device)
    starts = [0] * len(documents[0]) + [len(documents[0])] * len(documents[1])
    view = documents_view(torch.tensor([starts], device=target.device))
    packed_TF = target.states(ids_1T, view=view).tapped_BTF[0]
    first = 0
    for ids in documents:
        alone_TF = target.states(torch.tensor([ids], device=target.device)).tapped_BTF[0]
        difference = difference_beyond(
            RELATIVE_TOLERANCE[target.dtype],
            found=packed_TF[first : first + len(ids)],
            wanted=alone_TF,
        )
        if difference is not None:
            raise SelfTestError(
                f"data.packing: states of a conversation in a packed row differ by {difference:.2g}"
                " (relative) from the same one alone; this target cannot be packed"
            )
        first += len(ids)
