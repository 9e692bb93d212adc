"""Tool messages in an order that strict providers take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.build import assemble, call, event, result, say, session, short, user
from tests.context.sessions import Storyteller
from workbench.context.assemble import assemble_content
from workbench.context.sanitize import fault_of, is_clean, sanitize_assembly, sanitize_messages_with_tools, schemas_of
from workbench.context.settings import AgentSettings, CompactionSettings
from workbench.model.types import Message, Request, ToolCall, ToolSpec
from workbench.wording import RESUME_ARGUMENTS

TOOL = ToolSpec("read", parameters_json='{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}')


def sanitised(*messages: Message) -> list[str]:
    return [short(message).split("]")[0] for message in sanitize_messages_with_tools(messages, (TOOL,))[0]]


def test_clean_messages_stay_the_same_objects():
    """ASM-SAN-01."""
    messages = (user(), call("a", "b"), result("b"), result("a"), say("x"))
    clean, sources = sanitize_messages_with_tools(messages, (TOOL,))
    assert all(one is other for one, other in zip(clean, messages, strict=True))
    assert sources == (0, 1, 2, 3, 4)


def test_everything_odd_becomes_a_user_message_in_a_fixed_order():
    """ASM-SAN-02, -04, -05."""
    messages = (
        Message(
            role="assistant",
            content="t",
            tool_calls=(ToolCall("ok", "read", "{}"), ToolCall("open", "read", "{}"), ToolCall("bad", "", "{}")),
        ),
        result("bad"),
        result("ok", "first"),
        result("ok", "again"),
        result("who"),
    )
    clean, sources = sanitize_messages_with_tools(messages, (TOOL,))
    assert [short(message).split("]")[0] for message in clean] == [
        "assistant:ok:t",
        "tool:ok:first",
        "user:[orphan_tool_call",
        "user:[invalid_tool_call",
        "user:[invalid_tool_result",
        "user:[orphan_tool_result",
        "user:[orphan_tool_result",
    ]
    assert sources == (0, 2, 0, 0, 1, 3, 4)


def test_an_assistant_left_without_anything_is_dropped():
    """ASM-SAN-04."""
    assert sanitised(call("a", reasoning_content="why")) == ["user:[orphan_tool_call"]
    assert sanitised(result("a")) == ["user:[orphan_tool_result"]


@pytest.mark.parametrize(
    ("arguments", "is_fine"),
    [
        ("", True),
        (" {} ", True),
        ("{", False),
        ("NaN", False),
        ("[1]", False),
        ("null", False),
        ('{"n":"1"}', False),
        ('{"n":true}', False),
        ('{"n":1}', True),
        ('{"n":null}', True),
        ('{"m":[]}', True),
        (RESUME_ARGUMENTS, True),
    ],
)
def test_arguments_are_judged_by_type_only(arguments, is_fine):
    """ASM-SAN-02, -03: neither required nor extra keys count."""
    assert (fault_of(ToolCall("c", "read", arguments), schemas_of((TOOL,))) == "") is is_fine


def test_references_and_lists_of_types_are_followed():
    """ASM-SAN-03."""
    schema = (
        '{"$defs":{"p":{"type":["string","null"]}},"properties":{"x":{"$ref":"#/$defs/p"},"y":{"items":{"type":"number"}}'
        ',"z":{"$ref":"#/$defs/none"},"b":{"type":"boolean"}}}'
    )
    schemas = schemas_of((ToolSpec("t", declaration_json='{"function":{"parameters":' + schema + "}}"),))
    assert fault_of(ToolCall("c", "t", '{"x":"s","y":[1.5],"z":3,"b":false}'), schemas) == ""
    assert fault_of(ToolCall("c", "t", '{"x":1}'), schemas).endswith("$.x")
    assert fault_of(ToolCall("c", "t", '{"y":[1,"2"]}'), schemas).endswith("$.y[1]")
    assert fault_of(ToolCall("c", "t", '{"b":0}'), schemas).endswith("$.b")


def test_absurdly_deep_arguments_are_refused():
    """ASM-SAN-02, reliability M17."""
    assert fault_of(ToolCall("c", "read", "[" * 200_000), {}) != ""


def test_an_assembly_keeps_kinds_and_positions():
    """ASM-SAN-05."""
    stored = session(event(1, user()), event(2, call("a", text="t")), event(3, user("more")))
    sent = sanitize_assembly(assemble(stored), (TOOL,))
    assert [message.role for message in sent.messages] == ["system", "user", "assistant", "user", "user"]
    assert sent.positions == (-1, 0, 1, 1, 2)
    assert sent.kinds[3] == "history"


@given(st.integers(0, 10_000))
def test_no_call_goes_without_its_result(seed):
    """ASM-SAN-02, ASM-HIST-04, ASM-CHAIN-03: whatever was stored; and stored events never change."""
    story = Storyteller(seed, wildness=0.3)
    for _ in range(25):
        story.step()
    before = list(story.session.events)
    compaction = CompactionSettings(enabled=True, tool_result_max_tokens=5, oversized_tool_result_max_tokens=20)
    sent = assemble_content(
        story.invocation(), Request(tools=(TOOL,)), AgentSettings(add_session_summary=True), compaction, counter=None
    )
    clean, sources = sanitize_messages_with_tools(sent.messages, (TOOL,))
    assert len(clean) == len(sources)
    waiting: set[str] = set()
    for message in clean:
        if message.role == "tool":
            assert message.tool_id in waiting
            waiting.discard(message.tool_id)
        else:
            assert not waiting
            waiting = {one.id for one in message.tool_calls}
    assert not waiting
    assert is_clean(sent.messages, schemas_of((TOOL,))) is (clean == sent.messages)
    assert story.session.events == before
