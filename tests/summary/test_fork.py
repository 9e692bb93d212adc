"""Cache-safe requests and the steps that make one smaller."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workbench.errors import SummaryError
from workbench.model.types import ContentPart, GenerationConfig, Message, Request, ToolCall, ToolSpec
from workbench.summary.fork import (
    fork_request,
    payload_chars,
    source_chars,
    source_rounds,
    with_payload_omitted,
    without_oldest_round,
)
from workbench.wording import OMITTED_ARGUMENTS, OMITTED_RESULT_HEAD, OMITTED_RESULT_TAIL


def said(role: str, text: str = "text") -> Message:
    return Message(role=role, content=text)


PARENT = Request(
    messages=(said("system"), said("user", "q"), said("assistant", "a")),
    tools=(ToolSpec("search"),),
    generation_config=GenerationConfig(stream=True, temperature=0.3, max_tokens=9, stop=("END",)),
    structured_output={"type": "json_schema"},
    headers={"X-Tenant": "t"},
    extra_fields={"nested": {"k": [1]}},
)


def test_a_fork_is_the_parent_plus_one_instruction():
    """SUM-REQ-03, SUM-REQ-06."""
    fork = fork_request(PARENT, "Summarize.")
    assert fork.messages == (*PARENT.messages, said("user", "Summarize."))
    assert fork.tools is PARENT.tools
    assert fork.generation_config == replace(PARENT.generation_config, stream=False)
    assert fork.structured_output is None
    assert (fork.headers, fork.extra_fields) == (PARENT.headers, PARENT.extra_fields)


def test_what_a_callback_does_to_a_fork_never_reaches_the_parent():
    """SUM-REQ-04."""
    fork = fork_request(PARENT, "Summarize.")
    fork.extra_fields["nested"]["k"].append(2)
    fork.headers["X-Tenant"] = "other"
    assert PARENT.extra_fields == {"nested": {"k": [1]}}
    assert PARENT.headers == {"X-Tenant": "t"}


@pytest.mark.parametrize(
    ("message", "is_conversation"),
    [
        (said("system", "rules"), False),
        (said("user", " \n"), False),
        (Message(role="user", content_parts=(ContentPart("image", url="u"),)), True),
        (Message(role="assistant", tool_calls=(ToolCall(id="c"),)), True),
    ],
)
def test_a_parent_without_conversation_is_an_error(message, is_conversation):
    """SUM-REQ-04, SUM-ERR-06, E23."""
    parent = Request(messages=(message,))
    if is_conversation:
        assert len(fork_request(parent, "s").messages) == 2
    else:
        with pytest.raises(SummaryError, match="no conversation"):
            fork_request(parent, "s")


def test_rounds_start_at_user_messages_and_leave_system_messages_out():
    """SUM-FIT-11."""
    roles = ("system", "assistant", "user", "assistant", "tool", "system", "user", "user")
    assert source_rounds(tuple(said(role) for role in roles)) == [[1], [2, 3, 4], [6]]


def test_the_oldest_round_goes_first_and_the_latest_never():
    """SUM-FIT-10, SUM-FIT-11."""
    request = Request(messages=tuple(said(role) for role in ("user", "system", "assistant", "user", "user")))
    shorter = without_oldest_round(request)
    assert shorter is not None
    assert [m.role for m in shorter.messages] == ["system", "user", "user"]
    assert without_oldest_round(shorter) is None


def test_a_result_becomes_a_note_with_name_and_id():
    """SUM-FIT-07."""
    message = Message(
        role="tool", content="r" * 500, tool_id="c1", tool_name="search", content_parts=(ContentPart("text", text="p"),)
    )
    omitted = with_payload_omitted(replace(message, reasoning_content="hmm"))
    note = f'{OMITTED_RESULT_HEAD}tool_name="search", tool_call_id="c1"{OMITTED_RESULT_TAIL}'
    assert omitted == Message(role="tool", content=note, tool_id="c1", tool_name="search")
    assert payload_chars(message) == 501


def test_arguments_become_a_small_object_and_empty_ones_stay():
    """SUM-FIT-07."""
    message = Message(
        role="assistant", content="kept", tool_calls=(ToolCall("c1", "a", '{"x": 1}'), ToolCall("c2", "b", ""))
    )
    omitted = with_payload_omitted(message)
    assert omitted is not None
    assert omitted.content == "kept"
    assert [(c.id, c.name, c.arguments) for c in omitted.tool_calls] == [
        ("c1", "a", OMITTED_ARGUMENTS),
        ("c2", "b", ""),
    ]
    assert payload_chars(message) == 8
    assert source_chars((message,)) == 12


@pytest.mark.parametrize(
    "message",
    [said("user"), said("tool"), Message(role="assistant", tool_calls=(ToolCall("c1", "a", ""),))],
)
def test_other_messages_have_no_payload_to_omit(message):
    """SUM-FIT-07: a tool message needs an id, a call needs arguments."""
    assert with_payload_omitted(message) is None
