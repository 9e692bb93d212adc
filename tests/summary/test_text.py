"""Conversation text: blocks, labels, tool formatters."""

from __future__ import annotations

from tests.summary.events import agent, call, calls, event, result, user
from workbench.model.types import ASSISTANT, TOOL, Choice, Message, Response, ToolCall
from workbench.session.types import Event
from workbench.summary.text import (
    conversation_text,
    event_blocks,
    formatters_of,
    has_summarizable_content,
    has_user_text,
    reasoning_text,
    tool_call_text,
    tool_result_text,
)

NO_TOOLS = formatters_of(lambda call: "", lambda message: "")


def test_one_labelled_block_per_item_joined_by_newlines():
    """SUM-TXT-01."""
    assert conversation_text([user("hi"), agent("yo", author=""), user(" in  side \n")]) == (
        "user: hi\nunknown: yo\nuser: in  side"
    )


def test_all_choices_are_visited():
    """SUM-TXT-02, E16."""
    both = event(
        Message(role=TOOL, content="one", tool_id="c1", tool_name="a"),
        Message(role=TOOL, content="two", tool_id="c2", tool_name="b"),
    )
    assert event_blocks(both) == ["agent: [a returned: one]", "agent: [b returned: two]"]


def test_calls_come_before_the_content_of_the_same_message():
    """SUM-TXT-02."""
    assert event_blocks(calls(call(name="a"), call(name="b", arguments=""), text="checking")) == [
        'agent: [Called tool: a with args: {"q": 1}]',
        "agent: [Called tool: b]",
        "agent: checking",
    ]


def test_a_tool_result_yields_the_result_and_nothing_else():
    """SUM-TXT-02: a result that its formatter drops doesn't come back as content."""
    assert event_blocks(result("secret"), NO_TOOLS) == []


def test_reasoning_and_deltas_stay_out_of_the_text():
    """SUM-TXT-03."""
    delta_only = Event(author="agent", response=Response(choices=(Choice(delta=Message(content="piece")),)))
    thinking = event(Message(role=ASSISTANT, reasoning_content="hmm"))
    assert conversation_text([delta_only, thinking, Event(author="agent")]) == ""
    assert reasoning_text([thinking, event(Message(reasoning_content=" \n")), thinking]) == "hmm\nhmm"


def test_default_call_text():
    """SUM-TXT-04, E17."""
    assert tool_call_text(ToolCall(name="get", arguments='{"a":1}')) == '[Called tool: get with args: {"a":1}]'
    assert tool_call_text(ToolCall(name="get", arguments="{}")) == "[Called tool: get]"
    assert tool_call_text(ToolCall(name="get")) == "[Called tool: get]"
    assert tool_call_text(ToolCall(arguments='{"a":1}')) == ""


def test_default_result_text():
    """SUM-TXT-05."""
    assert tool_result_text(Message(content="  sunny\n", tool_name="weather")) == "[weather returned: sunny]"
    assert tool_result_text(Message(content="sunny")) == "[tool returned: sunny]"
    assert tool_result_text(Message(content=" \n", tool_name="weather")) == ""


def test_defaults_never_truncate():
    """SUM-TXT-06."""
    long_text = "x" * 100_000
    assert len(conversation_text([result(long_text), calls(call(arguments=long_text))])) > 200_000


def test_own_formatters_get_call_and_message_and_may_leave_out():
    """SUM-TXT-06."""
    own = formatters_of(lambda call: f"<{call.id}>", lambda message: f"({message.tool_id})")
    assert conversation_text([calls(call("c7")), result("r", call_id="c7")], own) == "agent: <c7>\nagent: (c7)"
    one = formatters_of(tool_result=lambda message: "")
    assert conversation_text([calls(call(arguments="")), result("r")], one) == "agent: [Called tool: search]"


def test_content_counts_under_the_configured_formatters_only():
    """SUM-TXT-07."""
    tools_only = [calls(call()), result("r")]
    assert has_summarizable_content(tools_only)
    assert not has_summarizable_content(tools_only, NO_TOOLS)
    assert not has_summarizable_content([agent("  "), Event(author="user")])


def test_user_text_is_what_an_author_named_user_says():
    """SUM-SEL-02."""
    assert has_user_text([agent("a"), user("q")])
    assert not has_user_text([agent("a"), user(" \n")])
