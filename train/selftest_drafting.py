"""Prove on the run's own drafter, attention and data that what is trained is what is decoded.

A leak makes training metrics good and drafts useless; so does any difference between the two paths.

Shape suffixes: B rows, S context tokens, N blocks, K slots per block, Q = N * K, C context tokens
of a block, D hidden size, F = tapped layers * D.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from train.attention import DenseAttentionTooLargeError
from train.batches import collate, epoch_batches
from train.drafter import ContextCache
from train.features import FeatureStore
from train.objective import DraftedBlocks, draft_blocks, objective_of
from train.selftest import RELATIVE_TOLERANCE, SelfTestError, difference_beyond
from train.settings import ConfigError
from train.windows import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from train.config import TrainConfig
    from train.course import Pair
    from train.data import Sample
    from train.objective import Objective, Rows


def check_run(config: TrainConfig, *, pair: Pair, samples: Sequence[Sample]) -> None:
    """Check the drafting on a micro-batch of held-out conversations.

    The shape is one that the held-out loss has as well, so nothing is compiled for this alone.

    Raises:
        ConfigError: The device needs dense attention, and the blocks do not fit.
        SelfTestError: See `check_drafting`.
    """
    num_rows, buckets = config.train.micro_batch, config.data.buckets
    group = next(epoch_batches(samples, buckets=buckets, rows=num_rows, order=None))
    batch = collate(group, rows=num_rows, buckets=buckets, eos_id=pair.target.eos_id)
    store = FeatureStore(pair.target, budget_bytes=0)
    objective = objective_of(config, device=pair.target.device, num_anchors=config.eval.num_anchors)
    try:
        check_drafting(
            pair,
            rows=rows_of(batch, store.features(batch), seed=0, epoch=0),
            objective=objective,
        )
    except DenseAttentionTooLargeError as error:
        raise ConfigError([f"eval.num_anchors: {error}"]) from error


@torch.no_grad()
def check_drafting(pair: Pair, *, rows: Rows, objective: Objective) -> None:
    """Check what a block is told, and that decoding it gives the same.

    Runs the drafter three times as training does, and once as decoding does. Equality is exact: a
    key that is masked adds nothing at all, whatever it holds.

    Args:
        pair: Target and drafter, of which no weight may be all zero.
        rows: A few conversations.
        objective: The run's, with its attention.

    Raises:
        SelfTestError: A block sees tokens or states that decoding will not have, or other blocks;
            or training and decoding compute different states.
    """
    drafted = _draft(pair, rows, objective)
    if not bool(drafted.anchors.keep_BN.any()):
        raise SelfTestError("the rows of the self-test hold no block")
    check_future(pair, rows=rows, objective=objective, drafted=drafted)
    check_neighbours(pair, rows=rows, objective=objective, drafted=drafted)
    check_decoding(pair, rows=rows, drafted=drafted)


def check_future(pair: Pair, *, rows: Rows, objective: Objective, drafted: DraftedBlocks) -> None:
    """Change all that follows one block's anchor in each row, and the states of the anchor itself.

    Blocks that start later are changed by it, so this also covers what they hold.

    Raises:
        SelfTestError: An earlier block changes, or none of the later ones does.
    """
    anchors = drafted.anchors
    # The middle one of each row's blocks, which are sorted and stand before the dropped ones.
    middle_B1 = anchors.keep_BN[:, 1:].sum(dim=1, keepdim=True) // 2
    cut_B1 = anchors.anchor_BN.gather(1, middle_B1)
    token_S = torch.arange(rows.ids_BS.shape[1], device=cut_B1.device)
    states_BSF = rows.target_hidden_BSF
    changed = dataclasses.replace(
        rows,
        ids_BS=torch.where(token_S > cut_B1, _other(rows.ids_BS), rows.ids_BS),
        target_hidden_BSF=torch.where(
            (token_S >= cut_B1)[..., None], 1.0 - 2.0 * states_BSF, states_BSF
        ),
    )
    found = _draft(pair, changed, objective)
    is_earlier_BN = anchors.keep_BN & (anchors.anchor_BN <= cut_B1)
    if not _equal_where(is_earlier_BN, found, drafted):
        raise SelfTestError(
            "a block changes with tokens after its anchor, or with states from the anchor on:"
            " training would be told what decoding cannot know"
        )
    is_later_BN = anchors.keep_BN & (anchors.anchor_BN > cut_B1)
    if bool(is_later_BN.any()) and _equal_where(is_later_BN, found, drafted):
        raise SelfTestError("blocks do not change with the tokens and states before them")


def check_neighbours(
    pair: Pair, *, rows: Rows, objective: Objective, drafted: DraftedBlocks
) -> None:
    """Change the anchor token of every second block, and nothing else.

    Raises:
        SelfTestError: Another block changes.
    """
    anchors = drafted.anchors
    is_odd_N = torch.arange(anchors.anchor_BN.shape[1], device=rows.ids_BS.device) % 2 == 1
    changes_BN = anchors.keep_BN & is_odd_N
    ids_BS = rows.ids_BS.scatter(
        1,
        # Dropped blocks and even ones write to the last token, which is put right afterwards.
        anchors.anchor_BN.where(changes_BN, rows.ids_BS.shape[1] - 1),
        _other(rows.ids_BS.gather(1, anchors.anchor_BN)),
    )
    ids_BS[:, -1] = rows.ids_BS[:, -1]
    found = _draft(pair, dataclasses.replace(rows, ids_BS=ids_BS), objective)
    if not _equal_where(anchors.keep_BN & ~is_odd_N, found, drafted):
        raise SelfTestError("a block changes with the tokens of another block")


def check_decoding(pair: Pair, *, rows: Rows, drafted: DraftedBlocks) -> None:
    """Draft one block with a cache that was filled in two steps, without a mask.

    Raises:
        SelfTestError: Training gave other states by more than rounding.
    """
    target, drafter, anchors = pair.target, pair.drafter, drafted.anchors
    block_size = drafter.config.block_size
    row = int(anchors.keep_BN.sum(dim=1).argmax())
    block = int(anchors.keep_BN[row].sum()) - 1
    start, end = (int(of[row, block]) for of in (anchors.context_start_BN, anchors.anchor_BN))
    context_1CF = rows.target_hidden_BSF[row : row + 1, start:end]
    num_context = end - start
    noise_1KD = target.embed(drafted.inputs.block_ids_BNK[row : row + 1, block])
    cache = ContextCache(drafter.config, max_tokens=num_context + block_size, like=noise_1KD)
    hidden_1KD = noise_1KD
    for first, last in ((0, num_context // 2), (num_context // 2, num_context)):
        hidden_1KD = drafter(
            noise_1KD,
            target_hidden_BCF=context_1CF[:, first:last],
            positions_BT=torch.arange(first, last + block_size, device=target.device)[None],
            cache=cache,
        )
    trained_NKD = drafted.hidden_BQD[row].view(-1, block_size, noise_1KD.shape[-1])
    tolerance = RELATIVE_TOLERANCE[noise_1KD.dtype]
    difference = difference_beyond(tolerance, found=hidden_1KD[0], wanted=trained_NKD[block])
    if difference is not None:
        raise SelfTestError(
            f"training and cached decoding of the same block differ by {difference:.2g} (relative)"
        )


def _draft(pair: Pair, rows: Rows, objective: Objective) -> DraftedBlocks:
    return draft_blocks(pair.drafter, target=pair.target, rows=rows, objective=objective)


def _equal_where(keep_BN: Tensor, found: DraftedBlocks, wanted: DraftedBlocks) -> bool:
    """Return whether all slots of the chosen blocks are the same, bit for bit."""
    is_same_BQ = (found.hidden_BQD == wanted.hidden_BQD).all(dim=-1)
    is_same_BN = is_same_BQ.view(*keep_BN.shape, -1).all(dim=-1)
    return bool((is_same_BN | ~keep_BN).all())


def _other(ids: Tensor) -> Tensor:
    """Return other token ids, which exist wherever the given ones do."""
    return torch.where(ids > 0, ids - 1, ids + 1)
