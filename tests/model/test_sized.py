"""Summaries of an exact size."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.call import EMPTY_CONTEXT
from workbench.errors import ConfigError, ModelError
from workbench.model.client import Model
from workbench.model.sized import DEFAULT_TOKENS, SizedModel, text_of_size
from workbench.model.types import USER, Message, Request
from workbench.tokens import LineCounter, SimpleTokenCounter, TiktokenCounter


def answer_of(model, prompt="Sum it up."):
    """The one response of a model."""

    async def ask():
        return [response async for response in model.generate(EMPTY_CONTEXT, request)]

    request = Request(messages=(Message(role=USER, content=prompt),))
    (response,) = asyncio.run(ask())
    return response


COUNTERS: list[LineCounter] = [
    SimpleTokenCounter(),
    SimpleTokenCounter(1.3),
    SimpleTokenCounter(1.0),
    SimpleTokenCounter(7.7),
    TiktokenCounter("o200k_base"),
    TiktokenCounter("cl100k_base"),
]


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.counter_id)
@given(n_tokens=st.integers(1, 2_000), seed=st.integers(0, 2**32 - 1))
def test_a_text_has_exactly_the_size_that_was_asked_for(counter, n_tokens, seed):
    """WB-RPL-07: text of exactly N tokens."""
    text = text_of_size(n_tokens, counter, seed=seed)
    assert counter.count_text(text) == n_tokens
    assert text == text_of_size(n_tokens, counter, seed=seed)
    assert text.isascii()


def test_another_request_has_another_text_and_the_same_request_the_same():
    """WB-CACHE-03: a summary that never changed would break no prefix."""
    model = SizedModel(50, TiktokenCounter("o200k_base"))
    texts = [answer_of(model, f"Sum up {n}.").choices[0].message.content for n in (1, 2, 3, 1)]
    assert texts[0] == texts[3]
    assert len(set(texts)) == 3
    assert len({text.split()[0] + text.split()[1] for text in texts}) == 3


def test_nothing_has_no_tokens():
    assert text_of_size(0, SimpleTokenCounter()) == ""


def test_a_counter_that_skips_sizes_is_an_error():
    """With two tokens to each character no text has three."""
    with pytest.raises(ModelError, match="3 tokens"):
        text_of_size(3, SimpleTokenCounter(0.5))


def test_the_model_answers_in_its_own_size_whatever_the_request_says():
    """WB-RPL-07."""
    counter = TiktokenCounter("o200k_base")
    model = SizedModel(120, counter)
    response = answer_of(model, "Use at most 30 words.")
    assert counter.count_text(response.choices[0].message.content) == 120
    assert response.usage is None
    assert response.done
    assert isinstance(model, Model)


@pytest.mark.parametrize(
    ("prompt", "size"), [("Use at most 30 words.", 30), ("请控制在 50 字以内", 50), ("Hi", DEFAULT_TOKENS)]
)
def test_without_a_size_the_word_limit_is_the_number_of_tokens(prompt, size):
    """WB-RPL-07: N = word limit."""
    counter = SimpleTokenCounter()
    assert counter.count_text(answer_of(SizedModel(None, counter), prompt).choices[0].message.content) == size


@pytest.mark.parametrize("size", [0, -1, True])
def test_a_size_is_a_whole_number_above_zero(size):
    with pytest.raises(ConfigError, match="sized_tokens"):
        SizedModel(size, SimpleTokenCounter())
