"""Conversations as the target's chat template writes them, and where the answers are in that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from train.conversations import Conversation


class UnusableError(Exception):
    """A conversation cannot be trained on; the message is the reason it is counted under."""


def rendered_answers(
    conversation: Conversation, tokenizer: Any
) -> tuple[str, list[tuple[int, int]]]:
    """Render a conversation and find the assistant's turns in the text.

    Many templates have no `{% generation %}` marks, so a turn is what a rendering up to it adds to
    the rendering of the turns before, followed by the header that opens an answer.

    Returns:
        The text, and for each answer its first character and the one after its last.

    Raises:
        UnusableError: There is no answer, the template refuses the turns, leaves tools out, or
            renders earlier turns differently once later ones are there, as templates do that strip
            old reasoning.
    """
    messages, options = conversation.messages, template_options(conversation)
    text = render(messages, tokenizer, options=options)
    require_tools(text, conversation, tokenizer)
    spans = []
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            before = render(messages[:place], tokenizer, opens_answer=True, options=options)
            upto = render(messages[: place + 1], tokenizer, options=options)
            if not upto.startswith(before) or not text.startswith(upto):
                raise UnusableError("the template changes earlier turns")
            spans.append((len(before), len(upto)))
    if not spans:
        raise UnusableError("no assistant turn")
    return text, spans


def template_options(conversation: Conversation) -> dict[str, Any]:
    """Return what a chat template must be told beside the turns."""
    options: dict[str, Any] = {}
    if conversation.thinking is not None:
        options["enable_thinking"] = conversation.thinking
    if conversation.tools:
        options["tools"] = list(conversation.tools)
    return options


def require_tools(text: str, conversation: Conversation, tokenizer: Any) -> None:
    """Check that a conversation's text tells of its tools: many templates know none.

    Raises:
        UnusableError: The text is the same without the tools, or without the calls.
    """
    messages, options = conversation.messages, template_options(conversation)
    if options.pop("tools", None) and text == render(messages, tokenizer, options=options):
        raise UnusableError("the template leaves out the tools")
    if any("tool_calls" in message for message in messages):
        silent = [{**one, "tool_calls": []} if "tool_calls" in one else one for one in messages]
        if text == render(silent, tokenizer, options=template_options(conversation)):
            raise UnusableError("the template leaves out the tool calls")


def render(
    messages: Sequence[dict[str, Any]],
    tokenizer: Any,
    *,
    opens_answer: bool = False,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Return the template's text for some turns.

    Args:
        messages: The turns; none give no text.
        tokenizer: Has the template.
        opens_answer: Add the header of an answer.
        options: See `template_options`.

    Raises:
        UnusableError: The template raises, as some do on an order of roles that they do not know.
    """
    if not messages:
        return ""
    try:
        text: str = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=opens_answer, tokenize=False, **(options or {})
        )
    except Exception as error:  # the template decides what it raises, and through which package
        raise UnusableError("the template refuses the turns") from error
    return text
