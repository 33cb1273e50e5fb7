from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.tiny_run import CHAT_TEMPLATE, EOS, MASK, make_tokenizer
from train.conversations import Conversation
from train.data import Encoding, Sample, build_dataset, encode, prompt_ids
from train.rendering import UnusableError
from train.settings import ConfigError


def encoding(tokenizer: Any, **changes: Any) -> Encoding:
    settings = {
        "eos_id": EOS,
        "mask_token_id": MASK,
        "max_length": 200,
        "min_supervised": 2,
        "vocab_size": 260,
    }
    return Encoding(tokenizer=tokenizer, **(settings | changes))


def turns(*contents: str) -> tuple[dict[str, str], ...]:
    roles = ("user", "assistant")
    return tuple({"role": roles[i % 2], "content": text} for i, text in enumerate(contents))


@pytest.fixture(scope="module", name="tokenizer")
def _tokenizer() -> Any:
    return make_tokenizer()


def supervised_text(sample: Sample, tokenizer: Any) -> str:
    kept = [id_ for id_, is_on in zip(sample.ids, sample.supervised, strict=True) if is_on]
    text: str = tokenizer.decode(kept)
    return text


def test_mask_covers_answers_and_their_ends_only(tokenizer: Any) -> None:
    sample = encode(Conversation(turns("hi", "yes", "so", "no")), encoding(tokenizer), index=0)
    assert supervised_text(sample, tokenizer) == "yes<|im_end|>no<|im_end|>"
    assert tokenizer.decode(sample.ids) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n"
        "<|im_start|>user\nso<|im_end|>\n<|im_start|>assistant\nno<|im_end|>\n"
    )


def test_cut_answer_is_supervised_without_its_end(tokenizer: Any) -> None:
    conversation = Conversation(turns("hi", "yes", "so", "no"), ends_turn=False)
    sample = encode(conversation, encoding(tokenizer), index=0)
    assert supervised_text(sample, tokenizer) == "yes<|im_end|>no"


def test_truncation_keeps_the_start(tokenizer: Any) -> None:
    conversation = Conversation(turns("hi", "abcdef"))
    whole = encode(conversation, encoding(tokenizer), index=0)
    cut = encode(conversation, encoding(tokenizer, max_length=len(whole.ids) - 5), index=0)
    assert cut.ids == whole.ids[:-5]
    assert supervised_text(cut, tokenizer) == "abc"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        pytest.param(turns("hi", "x"), "too few assistant tokens", id="short"),
        pytest.param(turns("hi"), "no assistant turn", id="question-only"),
        pytest.param(turns("hi", "a<|reserved|>bcd"), "holds the mask token", id="mask-token"),
    ],
)
def test_reasons_to_drop_a_row(
    tokenizer: Any, messages: tuple[dict[str, str], ...], reason: str
) -> None:
    with pytest.raises(UnusableError, match=reason):
        encode(Conversation(messages), encoding(tokenizer, min_supervised=3), index=0)


def test_template_that_rewrites_earlier_turns_is_noticed() -> None:
    # As thinking templates do: only the last answer keeps all of its text.
    template = CHAT_TEMPLATE.replace(
        "{{ message['content'] }}",
        "{{ message['content'] if loop.last else message['content'][:1] }}",
    )
    tokenizer = make_tokenizer(template)
    with pytest.raises(UnusableError, match="changes earlier turns"):
        encode(Conversation(turns("hi", "yes", "so", "no")), encoding(tokenizer), index=0)


def test_template_that_raises_drops_the_row() -> None:
    tokenizer = make_tokenizer("{{ raise_exception('no such role') }}")
    with pytest.raises(UnusableError, match="refuses"):
        encode(Conversation(turns("hi", "yes")), encoding(tokenizer), index=0)


TOOLS = ({"type": "function", "function": {"name": "look"}},)
CALLS = [{"type": "function", "function": {"name": "look", "arguments": {"at": "sky"}}}]
CALLED = (
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "content": "blue"},
    {"role": "assistant", "content": "it is blue"},
)
TOOL_TEMPLATE = "{{ tools | tojson if tools else '' }}" + CHAT_TEMPLATE.replace(
    "{{ message['content'] }}",
    "{{ message['content'] }}"
    "{% for call in message.tool_calls %}{{ call.function | tojson }}{% endfor %}",
)


def test_calls_of_tools_are_answers_too() -> None:
    tokenizer = make_tokenizer(TOOL_TEMPLATE)
    sample = encode(Conversation(CALLED, tools=TOOLS), encoding(tokenizer), index=0)
    assert supervised_text(sample, tokenizer) == (
        '{"name": "look", "arguments": {"at": "sky"}}<|im_end|>it is blue<|im_end|>'
    )
    assert tokenizer.decode(sample.ids).startswith(json.dumps(TOOLS))
    prompt = prompt_ids(Conversation(CALLED, tools=TOOLS), tokenizer)
    assert tokenizer.decode(prompt).startswith(json.dumps(TOOLS))


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        pytest.param(CHAT_TEMPLATE, "leaves out the tools", id="tools"),
        pytest.param("{{ tools }}" + CHAT_TEMPLATE, "leaves out the tool calls", id="calls"),
    ],
)
def test_template_that_knows_no_tools_is_noticed(template: str, reason: str) -> None:
    """Else the drafter would learn answers that seem to come from nowhere."""
    with pytest.raises(UnusableError, match=reason):
        encode(Conversation(CALLED, tools=TOOLS), encoding(make_tokenizer(template)), index=0)


def test_row_with_tokens_beyond_the_embedding_is_dropped(tokenizer: Any) -> None:
    conversation = Conversation(turns("hi", "yes"))
    most = max(encode(conversation, encoding(tokenizer), index=0).ids)
    encode(conversation, encoding(tokenizer, vocab_size=most + 1), index=0)
    with pytest.raises(UnusableError, match="no embedding"):
        encode(conversation, encoding(tokenizer, vocab_size=most), index=0)


def test_too_few_rows_are_told_with_the_reasons(tokenizer: Any) -> None:
    dataset = build_dataset([Conversation(turns("q"))] * 3, encoding(tokenizer))
    with pytest.raises(ConfigError) as caught:
        dataset.require(2, key="data.held_out")
    assert caught.value.problems == (
        "data.held_out: found 0 usable rows; dropped 3 (no assistant turn); wanted at least 2",
    )


def test_dropped_rows_are_counted_and_indices_stay(tokenizer: Any) -> None:
    rows = [
        Conversation(turns("q", "abc")),
        Conversation(turns("q")),
        Conversation(turns("q", "abc")),
    ]
    dataset = build_dataset(rows, encoding(tokenizer))
    assert [sample.index for sample in dataset.samples] == [0, 2]
    assert dataset.dropped == Counter({"no assistant turn": 1})


def test_prompt_ends_where_the_answer_begins(tokenizer: Any) -> None:
    ids = prompt_ids(Conversation(turns("hi", "yes", "so", "no")), tokenizer)
    assert tokenizer.decode(ids) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt_ids(Conversation(turns("", "")[1:]), tokenizer) is None
    strict = make_tokenizer("{{ raise_exception('no such role') }}")
    assert prompt_ids(Conversation(turns("hi")), strict) is None


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12), min_size=2
    )
)
def test_supervised_text_is_what_the_assistant_said(contents: list[str]) -> None:
    tokenizer = make_tokenizer()
    conversation = Conversation(turns(*contents))
    sample = encode(conversation, encoding(tokenizer, max_length=10_000, min_supervised=1), index=0)
    answers = [turn["content"] for turn in conversation.messages if turn["role"] == "assistant"]
    kept = [id_ for id_, is_on in zip(sample.ids, sample.supervised, strict=True) if is_on]
    wanted = chain.from_iterable(
        tokenizer(answer + "<|im_end|>", add_special_tokens=False)["input_ids"]
        for answer in answers
    )
    assert kept == list(wanted)
