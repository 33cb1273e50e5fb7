"""Choose the token that stands for "to be predicted"; imports no torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

ROLES = ("bos", "eos", "pad", "unk", "sep", "cls")
_SPARE = re.compile(r"mask|reserved|unused|extra|empty", re.IGNORECASE)


def unused_token(tokenizer: Any, *, num_rows: int, used: Collection[int]) -> int:
    """Return a token that stands in no conversation.

    Args:
        tokenizer: The target's.
        num_rows: Rows of the target's embedding.
        used: Tokens that are taken.

    Raises:
        ConfigError: All candidates are.
    """
    candidates = candidate_tokens(tokenizer, num_rows=num_rows)
    for token in candidates:
        if token not in used:
            return token
    found = f"none among {candidates} is unused" if candidates else "there is no special token"
    raise ConfigError([f"draft.mask_token_id: auto found no token: {found}; wanted its id"])


def candidate_tokens(tokenizer: Any, *, num_rows: int) -> list[int]:
    """Return tokens that text hardly holds, the best first.

    No text can hold a row of the embedding beyond the tokenizer's last; models have such rows that
    round their vocabulary up, and Qwen3's published drafters take the first of them. Otherwise a
    special token has to do: one whose name says that it is spare, if there is any, and the later
    ones first, since those that do something come first in a vocabulary.

    Args:
        tokenizer: The target's.
        num_rows: Rows of the target's embedding.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    beyond = max(vocabulary.values()) + 1
    taken = {getattr(tokenizer, f"{role}_token_id", None) for role in ROLES}
    template = str(tokenizer.chat_template or "")
    special = {
        token: added.content
        for token, added in tokenizer.added_tokens_decoder.items()
        if added.special and token not in taken and added.content not in template
    }
    ordered = sorted(special, key=lambda token: (not _SPARE.search(special[token]), -token))
    return [*range(beyond, min(beyond + 1, num_rows)), *(one for one in ordered if one < num_rows)]
