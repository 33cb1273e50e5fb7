"""A conversation whose answers are being written anew, one after the other.

Each answer is written on top of the new ones before it, as it will be when the target is deployed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from train.conversations import Conversation
from train.looping import is_looping, tokens_before_loop
from train.rendering import UnusableError, render, require_tools, template_options
from train.replies import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.conversations import Row
    from train.replies import Reply
    from train.target import Target

KNOWN_ROLES = frozenset({"system", "developer", "user", "assistant"})


@dataclass
class Dialogue:
    """A conversation whose answers are being written.

    Args:
        key: Names it by its id and its turns, the same in every run.
        row: As it was read; what it holds besides turns is kept.
        questions: Turns that nobody answered yet, in groups that get one answer each.
        messages: What was said so far.
        finish_reason: Of the last answer: `stop`, or `length` where it was cut.
        dropped: Why it is no use for training; empty when it is of use.
        tools: What the assistant may call.
    """

    key: str
    row: dict[str, Any]
    questions: deque[list[dict[str, Any]]]
    messages: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str = "stop"
    dropped: str = ""
    tools: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, row: Row) -> Dialogue:
        """Take the answers out of a row."""
        messages = row.conversation.messages
        tools = row.conversation.tools
        name = json.dumps([row.raw.get("id"), messages, *([tools] if tools else [])])
        dialogue = cls(
            key=hashlib.blake2b(name.encode(), digest_size=12).hexdigest(),
            row=row.raw,
            questions=deque(),
            tools=tools,
        )
        pending: list[dict[str, Any]] = []
        for message in [*messages, {"role": "assistant", "content": ""}]:
            if message["role"] not in KNOWN_ROLES:
                dialogue.dropped = f"holds a turn of role {message['role']!r}"
            if message["role"] != "assistant":
                pending.append(message)
            elif any(one["role"] == "user" for one in pending):
                dialogue.questions.append(pending)
                pending = []
        if not dialogue.questions:
            dialogue.dropped = dialogue.dropped or "no user turn"
        return dialogue

    def entry(self) -> dict[str, Any]:
        """Return the journal's line."""
        if self.dropped:
            return {"key": self.key, "dropped": self.dropped}
        return {
            "key": self.key,
            "messages": self.messages,
            "finish_reason": self.finish_reason,
        }


class Answering:
    """Moves dialogues along, one answer at a time.

    Args:
        target: Writes the answers.
        max_new_tokens: Tokens per answer.
        thinking: Passed to the chat template as `enable_thinking`; None leaves it out.
        cuts_loops: Whether an answer that repeats itself is cut before it does, instead of dropped.
    """

    def __init__(
        self,
        target: Target,
        *,
        max_new_tokens: int,
        thinking: bool | None = None,
        cuts_loops: bool = False,
    ) -> None:
        self._target = target
        self._thinking = thinking
        self._cuts_loops = cuts_loops
        self._longest = target.config.max_position_embeddings - max_new_tokens
        self._asked: dict[str, tuple[Dialogue, str]] = {}

    def ask(self, dialogue: Dialogue) -> Request | None:
        """Return the request for the next answer; None, with the reason noted, if there is none."""
        messages = [*dialogue.messages, *dialogue.questions[0]]
        try:
            require_tools(
                self._render(dialogue, messages),
                self._said(dialogue, messages),
                self._target.tokenizer,
            )
            text = self._render(dialogue, messages, opens_answer=True)
        except UnusableError as error:
            dialogue.dropped = str(error)
            return None
        ids = self._tokens(text)
        if len(ids) > self._longest:
            dialogue.dropped = "longer than the target's context"
            return None
        self._asked[dialogue.key] = (dialogue, text)
        return Request(dialogue.key, tuple(ids), part=len(dialogue.messages))

    def take(self, reply: Reply) -> Dialogue:
        """Add an answer to its dialogue; what is of no use ends it, and is left out."""
        dialogue, asked = self._asked.pop(str(reply.request.key))
        messages = [*dialogue.messages, *dialogue.questions.popleft()]
        if self._cuts_loops:
            reply = self._before_loop(asked, reply)
        text = self._text(reply.ids)
        answered = [*messages, {"role": "assistant", "content": text}]
        fault = self._fault(dialogue, answered, reply=reply, asked=asked)
        if fault and not dialogue.messages:
            dialogue.dropped = fault
        if fault:
            dialogue.questions.clear()
            return dialogue
        dialogue.messages = answered
        if not reply.ended:
            # The target did not end its turn here: what follows would not be what it reads.
            dialogue.finish_reason = "length"
            dialogue.questions.clear()
        return dialogue

    def _before_loop(self, asked: str, reply: Reply) -> Reply:
        """Return an answer up to where it begins to repeat itself, cut between words."""
        num_tokens = tokens_before_loop(reply.ids, self._text)
        if num_tokens == len(reply.ids):
            return reply
        # Half a word is often other tokens than those that the whole word begins with.
        while num_tokens and not self._reads_back(asked, reply, num_tokens):
            num_tokens -= 1
        return dataclasses.replace(reply, ids=reply.ids[:num_tokens], ended=False)

    def _reads_back(self, asked: str, reply: Reply, num_tokens: int) -> bool:
        """Return whether the text of an answer's first tokens is read as these tokens."""
        ids = reply.ids[:num_tokens]
        return self._tokens(asked + self._text(ids)) == [*reply.request.prompt_ids, *ids]

    def _fault(
        self, dialogue: Dialogue, answered: list[dict[str, Any]], *, reply: Reply, asked: str
    ) -> str:
        """Return why an answer is no use for training; empty when it is of use.

        Args:
            dialogue: It belongs to this.
            answered: The turns up to the answer.
            reply: The answer.
            asked: The turns before it, as the template wrote them.
        """
        text = answered[-1]["content"]
        if not text.strip():
            return "empty"
        if is_looping(reply.ids, text):
            return "looping"
        if not self._reads_back(asked, reply, len(reply.ids)):
            # Training would see tokens that the target did not choose.
            return "tokens change when read back"
        try:
            rendered = self._render(dialogue, answered)
        except UnusableError as error:
            return str(error)
        return "" if rendered.startswith(asked + text) else "the template changes the answer"

    def _render(
        self, dialogue: Dialogue, messages: list[dict[str, Any]], *, opens_answer: bool = False
    ) -> str:
        return render(
            messages,
            self._target.tokenizer,
            opens_answer=opens_answer,
            options=template_options(self._said(dialogue, messages)),
        )

    def _text(self, ids: Sequence[int]) -> str:
        text: str = self._target.tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def _said(self, dialogue: Dialogue, messages: list[dict[str, Any]]) -> Conversation:
        return Conversation(tuple(messages), thinking=self._thinking, tools=dialogue.tools)

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self._target.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids
