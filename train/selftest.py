"""Prove in seconds what would otherwise be noticed after hours.

Shape suffixes: B sequences, T tokens, P prompt tokens, M draft tokens, D hidden size, F = tapped
layers * D, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from train.branches import Branches
from train.data import HOLDS_MASK
from train.reader import Reader
from train.target_ends import relative_difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from train.data import Dataset
    from train.target import Target

MAX_TOKENS = 24
RELATIVE_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}
"""Two ways to compute the same states differ by rounding, which adds up over the layers."""
SCALE_TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 1e-2}
"""A scale may be rounded itself before it multiplies."""


class SelfTestError(Exception):
    """The target does not behave as the training needs; exit code 1."""


def difference_beyond(tolerance: float, *, found: Tensor, wanted: Tensor) -> float | None:
    """Return by how much two tensors differ, relative to what is wanted, where it is too much.

    Returns:
        None where it is at most the tolerance; nan is more than that.
    """
    difference = relative_difference(found, wanted)
    return None if difference <= tolerance else difference


def check_target(target: Target, rows: Sequence[Sequence[int]]) -> None:
    """Check the ways in which states of a target go wrong silently.

    Args:
        target: The loaded target.
        rows: Token ids of two conversations; a few of their first tokens are used.

    Raises:
        SelfTestError: Hooked states are not the hidden states of their layers, the embedding or
            the head is not the whole path of this architecture, or rows of a batch disturb each
            other.
    """
    shorter, longer = sorted(rows, key=len)
    longer_1T = torch.tensor([longer[:MAX_TOKENS]], device=target.device)
    shorter_1T = torch.tensor([shorter[: max(1, longer_1T.shape[1] // 2)]], device=target.device)
    check_layers(target, longer_1T)
    check_batch(target, longer_1T=longer_1T, shorter_1T=shorter_1T)
    check_cache(target, longer_1T)


def check_mask_token(mask_token_id: int, datasets: Mapping[str, Dataset]) -> None:
    """Check that no conversation says the token that means "to be predicted".

    Args:
        mask_token_id: As `draft.mask_token_id`.
        datasets: The data by the key of its file; rows that hold the token were dropped.

    Raises:
        SelfTestError: A conversation holds it.
    """
    for key, dataset in datasets.items():
        if num_rows := dataset.dropped[HOLDS_MASK]:
            raise SelfTestError(
                f"draft.mask_token_id: token {mask_token_id} occurs in {num_rows} conversations of"
                f" data.{key}; wanted one that no text holds"
            )


@torch.no_grad()
def check_layers(target: Target, ids_1T: Tensor) -> None:
    """Compare hooks, embedding and head with what transformers itself returns.

    Raises:
        SelfTestError: They differ by more than rounding, the hooked states at all.
    """
    model: Any = target.model
    output = model(input_ids=ids_1T, output_hidden_states=True, use_cache=False)
    states = target.states(ids_1T)
    wanted_1TF = torch.cat([output.hidden_states[i + 1] for i in target.layer_ids], dim=-1)
    name = type(model).__name__
    if not torch.equal(states.tapped_BTF, wanted_1TF):
        raise SelfTestError(f"{name}: hooked states are not the hidden states of their layers")
    tolerance = SCALE_TOLERANCE[target.dtype]
    embedded_1TD = target.embed(ids_1T)
    if difference_beyond(tolerance, found=embedded_1TD, wanted=output.hidden_states[0]) is not None:
        raise SelfTestError(
            f"{name} does something to its embeddings before the first layer that is not a scale"
            " in its configuration, such as adding learned positions: not supported"
        )
    # The head sees the same states, but its matrix product may pick another kernel.
    tolerance = RELATIVE_TOLERANCE[target.dtype]
    logits_1TV = target.logits(states.final_BTD)
    if difference_beyond(tolerance, found=logits_1TV, wanted=output.logits) is not None:
        raise SelfTestError(
            f"{name} does something to its logits after the head that is not a scale or a cap in"
            " its configuration: not supported"
        )


def check_batch(target: Target, *, longer_1T: Tensor, shorter_1T: Tensor) -> None:
    """Compare a padded batch of two lengths with the same rows alone.

    Raises:
        SelfTestError: Their states differ by more than rounding.
    """
    num_padding = longer_1T.shape[1] - shorter_1T.shape[1]
    padded_1T = torch.nn.functional.pad(shorter_1T, (0, num_padding), value=target.eos_id)
    batch_BTF = target.states(torch.cat([longer_1T, padded_1T])).tapped_BTF
    for row, ids_1T in enumerate((longer_1T, shorter_1T)):
        alone_1TF = target.states(ids_1T).tapped_BTF
        batched_1TF = batch_BTF[row : row + 1, : ids_1T.shape[1]]
        tolerance = RELATIVE_TOLERANCE[target.dtype]
        difference = difference_beyond(tolerance, found=batched_1TF, wanted=alone_1TF)
        if difference is not None:
            raise SelfTestError(
                f"states of row {row} in a batch differ by {difference:.2g} (relative) from the"
                " same row alone"
            )


def check_cache(target: Target, ids_1T: Tensor) -> None:
    """Compare states read behind rejected draft tokens, as decoding does, with the whole row's.

    A target with a recurrent state cannot forget what it has read.

    Raises:
        SelfTestError: They differ by more than rounding, or cannot be read so.
    """
    num_prompt = ids_1T.shape[1] // 2
    prompt_1P, draft_1M = ids_1T[:, :num_prompt], ids_1T[:, num_prompt:]
    chain = Branches.chain(*draft_1M.shape, device=target.device)
    whole_1MF = target.states(ids_1T).tapped_BTF[:, num_prompt:]
    name = type(target.model).__name__
    try:
        reader = Reader(target, prompt_1P.tolist(), room=draft_1M.shape[1])
        reader.read_prompts()
        rejected = reader.read(draft_1M.flip(1), branches=chain)
        reader.keep([[]], tapped_BMF=rejected.tapped_BTF)
        found_1MF = reader.read(draft_1M, branches=chain).tapped_BTF
    except Exception as error:  # the architecture decides what it raises
        reason = str(error).strip().partition("\n")[0]
        raise SelfTestError(
            f"{name} cannot take back rejected draft tokens, as decoding must:"
            f" {type(error).__name__}: {reason}"
        ) from error
    tolerance = RELATIVE_TOLERANCE[target.dtype]
    difference = difference_beyond(tolerance, found=found_1MF, wanted=whole_1MF)
    if difference is not None:
        raise SelfTestError(
            f"{name} cannot take back rejected draft tokens: states read behind them differ by"
            f" {difference:.2g} (relative) from those of the whole row"
        )
