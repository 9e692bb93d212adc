"""Token counters: what costs tokens, and that a cheaper way to count gives the same number."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.call import EMPTY_CONTEXT
from workbench.errors import ConfigError
from workbench.model.types import ContentPart, Message, ToolCall
from workbench.tokens import (
    SimpleTokenCounter,
    TiktokenCounter,
    TokenCounter,
    counted_texts,
    encoding_name,
    get_token_counter,
    set_token_counter,
    token_counter_in_force,
)

FULL = Message(
    role="assistant",
    content="abcd",
    reasoning_content="efgh",
    content_parts=(ContentPart("text", text="ijkl"), ContentPart("image", url="http://x/long/address.png")),
    tool_calls=(ToolCall(id="c1", name="find", arguments="{}", description="d"),),
    tool_id="not counted",
    tool_name="not counted",
)


@pytest.fixture(scope="module")
def tiktokens() -> dict[str, TiktokenCounter]:
    return {name: TiktokenCounter(name) for name in ("cl100k_base", "o200k_base")}


def simple(message: Message, runes_per_token: float = 4.0) -> int:
    return SimpleTokenCounter(runes_per_token).count_tokens(EMPTY_CONTEXT, message)


def test_both_counters_keep_the_protocol(tiktokens):
    """SUM-TOK-01."""
    assert isinstance(SimpleTokenCounter(), TokenCounter)
    assert isinstance(tiktokens["cl100k_base"], TokenCounter)


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (0, 3), (1, 1), (2, 1)])
def test_a_range_outside_the_list_is_refused(start, end, tiktokens):
    """SUM-TOK-02."""
    for counter in (SimpleTokenCounter(), tiktokens["cl100k_base"]):
        with pytest.raises(ValueError, match="range"):
            counter.count_tokens_range(EMPTY_CONTEXT, [Message(), Message()], start, end)


def test_texts_that_cost_tokens():
    """SUM-TOK-03: role, tool id, tool name and parts that aren't text are free; nothing is added per message."""
    runes = sum(map(len, ("abcd", "efgh", "ijkl", "function", "c1", "find", "d", "{}")))
    assert simple(FULL, 1.0) == runes == sum(len(text) for text in counted_texts(FULL))


def test_the_value_is_a_divisor_and_the_result_is_cut():
    """SUM-TOK-03, SUM-TOK-05."""
    assert simple(Message(content="x" * 11)) == 2
    assert simple(Message(content="x" * 12), 1.2) == 10
    assert simple(Message(content="这是十二个字的一句话呀哦"), 1.5) == 8


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), True])
def test_a_divisor_must_be_above_zero(value):
    """SUM-TOK-03, SUM-ERR-02."""
    with pytest.raises(ConfigError) as caught:
        SimpleTokenCounter(value)
    assert caught.value.field == "approx_runes_per_token"


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (Message(), 0),
        (Message(content="a"), 1),
        (Message(reasoning_content="a"), 1),
        (Message(tool_calls=(ToolCall(id="c"),)), 2),
        (Message(content_parts=(ContentPart("text", text="abc"),)), 0),
    ],
)
def test_at_least_one_token_when_something_is_said(message, tokens):
    """SUM-TOK-04."""
    assert simple(message) == tokens


def test_a_range_sums_whole_messages():
    """SUM-TOK-04: the cut is per message, so 7 + 7 characters are 1 + 1 tokens."""
    messages = [Message(content="x" * 7)] * 2
    assert SimpleTokenCounter().count_tokens_range(EMPTY_CONTEXT, messages, 0, 2) == 2


def test_the_process_counter_can_be_set_and_restored():
    """SUM-TOK-06."""
    mine = SimpleTokenCounter(1.0)
    with token_counter_in_force(mine):
        assert get_token_counter() is mine
        set_token_counter(None)
        assert repr(get_token_counter()) == "SimpleTokenCounter(approx_runes_per_token=4)"
    assert get_token_counter() is not mine


def test_tiktoken_counts_each_field_alone_without_minimum(tiktokens):
    """SUM-TOK-07."""
    counter = tiktokens["cl100k_base"]
    assert counter.count_tokens(EMPTY_CONTEXT, FULL) == sum(map(counter.count_text, counted_texts(FULL)))
    assert counter.count_tokens(EMPTY_CONTEXT, Message()) == 0


def test_unknown_models_get_the_common_encoding():
    """SUM-TOK-07."""
    assert encoding_name("nobody-knows-me") == "cl100k_base"
    assert encoding_name("gpt-4o") == "o200k_base"


def test_each_distinct_text_is_tokenized_once():
    """SUM-TOK-07, SUM-TOK-08: all of it on this machine, which the test guard against connections proves."""
    counter = TiktokenCounter("cl100k_base")
    for text in ("one", "two", "one", ""):
        counter.count_text(text)
    assert counter.counter_calls == 2


def test_a_counted_text_isnt_held_in_memory_for_its_counts_sake():
    """SUM-TOK-07: a service counts for months."""

    class Text(str):
        __slots__ = ("__weakref__",)  # a plain string can't be watched

    counter = TiktokenCounter("cl100k_base")
    text = Text("a long prompt, " * 20)
    watched, tokens = weakref.ref(text), counter.count_text(text)
    del text
    gc.collect()
    assert watched() is None
    assert (counter.count_text("a long prompt, " * 20), counter.counter_calls) == (tokens, 1)


def test_counts_that_nobody_asks_for_any_more_are_forgotten(monkeypatch):
    monkeypatch.setattr("workbench.tokens._MAX_REMEMBERED", 4)
    counter = TiktokenCounter("cl100k_base")
    for n in range(30):
        assert counter.count_text("always asked for") == 3
        counter.count_text(f"word {n}")
    assert counter.counter_calls == 31
    counter.count_text("word 0")
    assert counter.counter_calls == 32


def test_half_a_surrogate_pair_is_counted_not_refused(tiktokens):
    """SUM-TOK-07."""
    assert tiktokens["cl100k_base"].count_text("broken \ud83d emoji") > 0


PIECES = (
    "ab",
    "Z",
    " ",
    "  ",
    "é",
    "\u0301",
    "'s",
    "'",
    ".",
    ",",
    "，",
    "。",
    "!",
    "中文",
    "1",
    "\t",
    "\n",
    "-",
    "😀",
    "\r",
)


@given(st.integers(0, 2**32))
def test_a_line_costs_what_its_text_with_a_newline_costs(tiktokens, seed):
    """SUM-TOK-09."""
    rng = Random(seed)
    for counter in tiktokens.values():
        text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(60)))
        assert counter.count_line(text) == counter.count_text(text + "\n")
