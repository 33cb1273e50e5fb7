"""The training mask as tiles for flex_attention, computed from the anchors.

Shape suffixes: B sequences, N blocks, X tiles of queries, Y tiles of keys, W blocks that a tile of
queries touches.

`create_block_mask` would evaluate the rule for every pair of tokens: 2.4 GB of bools and more in
temporaries, for 32,768 draft tokens over 40,000 of context. Where blocks start and end says it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.attention.flex_attention import BlockMask

from train.visibility import visibility

if TYPE_CHECKING:
    from torch import Tensor

    from train.anchors import Anchors

TILE = 128
"""Queries and keys per tile: flex_attention's default, which suits its kernels on every GPU."""


def block_mask(
    anchors: Anchors, *, num_context: int, block_size: int, tile: int = TILE
) -> BlockMask:
    """Sort the tiles into skipped, evaluated and fully visible ones.

    Nothing needs to divide anything; but a last tile of queries that is not full is evaluated even
    where all of it sees the context, as `create_block_mask` does.

    Args:
        anchors: Where the blocks start.
        num_context: S, the padded context length.
        block_size: Slots per block.
        tile: Queries and keys per tile.

    Returns:
        The same tiles as `create_block_mask` for blocks shorter than a tile, without waiting for
        the device. Tiles within a single longer block are evaluated although they are full.
    """
    num_queries = anchors.anchor_BN.shape[1] * block_size
    num_keys = num_context + num_queries
    context_BXY, full_BXY = _context_tiles(
        anchors, num_context=num_context, block_size=block_size, tile=tile
    )
    own_XY = _own_tiles(
        anchors.anchor_BN, num_context=num_context, block_size=block_size, tile=tile
    )
    num_partial, partial = _ordered((context_BXY | own_XY) & ~full_BXY)
    num_full, full = _ordered(full_BXY)
    return BlockMask.from_kv_blocks(
        num_partial,
        partial,
        num_full,
        full,
        BLOCK_SIZE=tile,
        mask_mod=visibility(anchors, num_context=num_context, block_size=block_size),
        seq_lengths=(num_queries, num_keys),
    )


def _context_tiles(
    anchors: Anchors, *, num_context: int, block_size: int, tile: int
) -> tuple[Tensor, Tensor]:
    """Mark tiles of which some pair, and of which every pair, is a block and its context."""
    num_blocks = anchors.anchor_BN.shape[1]
    num_queries = num_blocks * block_size
    device = anchors.anchor_BN.device
    first_query_X = torch.arange(0, num_queries, tile, device=device)
    first_key_Y = torch.arange(0, num_context + num_queries, tile, device=device)
    first_block_X = first_query_X // block_size
    last_block_X = ((first_query_X + tile - 1) // block_size).clamp(max=num_blocks - 1)
    most_blocks = (tile + block_size - 2) // block_size + 1
    block_XW = first_block_X[:, None] + torch.arange(most_blocks, device=device)
    # Tiles that touch fewer blocks count their last one again, which changes neither any nor all.
    block_XW = torch.minimum(block_XW, last_block_X[:, None])
    start_BXW1 = anchors.context_start_BN[:, block_XW, None]
    end_BXW1 = anchors.anchor_BN[:, block_XW, None]
    touches_BXWY = (start_BXW1 < first_key_Y + tile) & (end_BXW1 > first_key_Y)
    touches_BXWY &= start_BXW1 < end_BXW1
    covers_BXWY = (start_BXW1 <= first_key_Y) & (end_BXW1 >= first_key_Y + tile)
    is_whole_X1 = (first_query_X + tile <= num_queries)[:, None]
    return touches_BXWY.any(dim=2), covers_BXWY.all(dim=2) & is_whole_X1


def _own_tiles(anchor_BN: Tensor, *, num_context: int, block_size: int, tile: int) -> Tensor:
    """Mark tiles in which some query meets its own block; [X, Y], the same for all rows."""
    num_queries = anchor_BN.shape[1] * block_size
    device = anchor_BN.device
    first_query_X1 = torch.arange(0, num_queries, tile, device=device)[:, None]
    first_key_Y = torch.arange(0, num_context + num_queries, tile, device=device)
    end_query_X1 = (first_query_X1 + tile).clamp(max=num_queries)
    begin_X1 = num_context + first_query_X1 // block_size * block_size
    end_X1 = num_context + (end_query_X1 + block_size - 1) // block_size * block_size
    return (begin_X1 < first_key_Y + tile) & (end_X1 > first_key_Y)


def _ordered(tiles_BXY: Tensor) -> tuple[Tensor, Tensor]:
    """Count the marked tiles of each row and list them first, as flex_attention wants them."""
    num_BX = tiles_BXY.sum(dim=-1, dtype=torch.int32)
    order_BXY = tiles_BXY.int().argsort(dim=-1, descending=True, stable=True).int()
    return num_BX[:, None], order_BXY[:, None].contiguous()
