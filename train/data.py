"""Conversations as token rows, with a loss mask on what the assistant says.

Rows that are of no use are dropped and counted by reason. How rows become batches is
`train.batches`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from train.rendering import UnusableError, render, rendered_answers, template_options
from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from train.config import TrainConfig
    from train.conversations import Conversation
    from train.target import Target
    from train.target_shape import TargetShape

HOLDS_UNKNOWN = "holds a token that the target has no embedding for"
"""Reason under which a conversation is dropped whose tokenizer knows more than the target."""

HOLDS_MASK = "holds the mask token"
"""Reason under which a conversation is dropped that says the mask token."""


@dataclass(frozen=True)
class Encoding:
    """How conversations become token rows.

    Args:
        tokenizer: The target's, with a chat template; gives character offsets.
        eos_id: Token that ends a turn; also pads, which no loss and no attention looks at.
        mask_token_id: Must not occur in a row: it means "to be predicted"; None while the token
            is yet to be chosen.
        max_length: Tokens of a conversation that are kept.
        min_supervised: Fewest supervised tokens of a usable row.
        vocab_size: Rows of the target's embedding; tokenizers may have more tokens.
    """

    tokenizer: Any
    eos_id: int
    mask_token_id: int | None
    max_length: int
    min_supervised: int
    vocab_size: int

    @classmethod
    def of(cls, config: TrainConfig, target: Target | TargetShape) -> Encoding:
        """Return the encoding of a run."""
        chosen = config.draft.mask_token_id
        return cls(
            tokenizer=target.tokenizer,
            eos_id=target.eos_id,
            mask_token_id=None if chosen == "auto" else chosen,
            max_length=config.data.max_length,
            min_supervised=config.min_supervised,
            vocab_size=target.config.vocab_size,
        )


@dataclass(frozen=True)
class Sample:
    """One tokenised conversation, or several in one row; see `train.packing`.

    Args:
        index: Place in the data file of the first; anchors are drawn from it.
        ids: Tokens.
        supervised: True where the assistant speaks, its end-of-turn token included.
        document_starts: Where each conversation begins, rising; the first at 0.
    """

    index: int
    ids: list[int]
    supervised: list[bool]
    document_starts: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Dataset:
    """Usable samples, and how many were dropped for which reason."""

    samples: list[Sample]
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def num_conversations(self) -> int:
        """Usable conversations, which are more than samples where those hold several."""
        return sum(len(sample.document_starts) for sample in self.samples)

    @property
    def dropped_words(self) -> str:
        """How many rows were dropped and why, as the end of a sentence; empty if none was."""
        reasons = ", ".join(f"{number} ({why})" for why, number in self.dropped.items())
        return f"; dropped {reasons}" if reasons else ""

    def require(self, least: int, *, key: str) -> None:
        """Check that there is enough.

        Args:
            least: Samples that are wanted.
            key: Where they are from.

        Raises:
            ConfigError: There are fewer.
        """
        if len(self.samples) < least:
            found = f"{len(self.samples)} usable rows{self.dropped_words}"
            raise ConfigError([f"{key}: found {found}; wanted at least {least}"])


def build_dataset(conversations: Iterable[Conversation], encoding: Encoding) -> Dataset:
    """Tokenise conversations; the ones of no use are counted, not raised."""
    dataset = Dataset(samples=[])
    for index, conversation in enumerate(conversations):
        try:
            dataset.samples.append(encode(conversation, encoding, index=index))
        except UnusableError as error:
            dataset.dropped[str(error)] += 1
    return dataset


def encode(conversation: Conversation, encoding: Encoding, *, index: int) -> Sample:
    """Tokenise one conversation as the target's chat template renders it.

    Raises:
        UnusableError: See the reasons below.
    """
    ids, supervised = _supervised_tokens(conversation, encoding)
    ids, supervised = ids[: encoding.max_length], supervised[: encoding.max_length]
    if max(ids, default=0) >= encoding.vocab_size:
        raise UnusableError(HOLDS_UNKNOWN)
    if encoding.mask_token_id in ids:
        raise UnusableError(HOLDS_MASK)
    if sum(supervised) < encoding.min_supervised:
        raise UnusableError("too few assistant tokens")
    if not any(a and b for a, b in itertools.pairwise(supervised)):
        raise UnusableError("no two assistant tokens in a row")
    return Sample(index=index, ids=ids, supervised=supervised)


def _supervised_tokens(
    conversation: Conversation, encoding: Encoding
) -> tuple[list[int], list[bool]]:
    """Return all tokens of a conversation, and where the assistant speaks."""
    text, spans = rendered_answers(conversation, encoding.tokenizer)
    tokens = encoding.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids: list[int] = tokens["input_ids"]
    supervised = [False] * len(ids)
    for first_char, end_char in spans:
        for place, (token_start, token_end) in enumerate(tokens["offset_mapping"]):
            if first_char <= token_start and token_end <= end_char:
                supervised[place] = True
                if ids[place] == encoding.eos_id:
                    # What the template adds behind the end of a turn is not the assistant's.
                    supervised[place] = conversation.ends_turn or end_char < spans[-1][1]
                    break
    return ids, supervised


def prompt_ids(conversation: Conversation, tokenizer: Any) -> list[int] | None:
    """Return the tokens that a user's first question is asked with.

    Returns:
        Its ids; None without a user turn, or where the template refuses the turns before it.
    """
    roles = [message["role"] for message in conversation.messages]
    if "user" not in roles:
        return None
    turns = conversation.messages[: roles.index("user") + 1]
    try:
        text = render(turns, tokenizer, opens_answer=True, options=template_options(conversation))
    except UnusableError:
        return None
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
