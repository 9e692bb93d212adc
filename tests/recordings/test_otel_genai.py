"""Model calls as spans, under the newer and the older conventions and in the forms of several exporters."""

from __future__ import annotations

import json

import pytest

from tests.recordings.files import document, jsonl, texts
from workbench.errors import RecordingError
from workbench.model.types import Usage
from workbench.recordings import load_recordings, write_recording

START = 1_772_413_200_000_000_000
CALL = {"type": "tool_call", "id": "c1", "name": "track", "arguments": {"order": 7731}}
INPUT = [{"role": "user", "parts": [{"type": "text", "content": "Where is 7731?"}]}]
ASKING = {"role": "assistant", "parts": [{"type": "reasoning", "content": "look"}, CALL], "finish_reason": "tool_call"}
RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "in Wuhan"}]}
SAYING = {"role": "assistant", "parts": [{"type": "text", "content": "In Wuhan."}], "finish_reason": "stop"}
TOOLS = [{"type": "function", "name": "track", "description": "finds", "parameters": {"type": "object"}}]


def newer(messages, answer, **more):
    return {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m",
        "gen_ai.conversation.id": "conv", "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
        "gen_ai.tool.definitions": json.dumps(TOOLS), "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps([answer]), **more,
    }  # fmt: skip


FIRST = newer(INPUT, ASKING, **{
    "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 9, "gen_ai.response.id": "r1",
    "gen_ai.usage.cache_read.input_tokens": 60, "gen_ai.usage.cache_creation.input_tokens": 30,
})  # fmt: skip
SECOND = newer([*INPUT, ASKING, RESULT], SAYING, **{"gen_ai.response.id": "r2"})


def value_of(plain):
    """A value in OTLP's wrapper."""
    if isinstance(plain, bool):
        return {"boolValue": plain}
    if isinstance(plain, int):
        return {"intValue": str(plain)}
    if isinstance(plain, list):
        return {"arrayValue": {"values": [value_of(item) for item in plain]}}
    if isinstance(plain, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": value_of(item)} for key, item in plain.items()]}}
    return {"stringValue": plain}


def listed(attributes):
    return [{"key": key, "value": value_of(value)} for key, value in attributes.items()]


def otlp_span(place, attributes, *, events=(), parent="", trace="t1"):
    return {
        "traceId": trace, "spanId": f"s{place}", "parentSpanId": parent, "name": "chat m",
        "startTimeUnixNano": str(START + place * 10**9), "endTimeUnixNano": str(START + place * 10**9 + 5 * 10**8),
        "attributes": listed(attributes),
        "events": [{"name": name, "timeUnixNano": "1", "attributes": listed(more)} for name, more in events],
    }  # fmt: skip


def export(*spans):
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": listed({"service.name": "x"})},
                "scopeSpans": [{"scope": {}, "spans": list(spans)}],
            }
        ]
    }


def plain_span(place, attributes):
    """As the console exporter writes it."""
    return {
        "name": "chat m", "context": {"trace_id": "0x1", "span_id": f"0x{place}"}, "parent_id": None,
        "start_time": f"2026-03-02T01:00:0{place}.000000Z", "end_time": f"2026-03-02T01:00:0{place}.500000Z",
        "attributes": attributes, "events": [],
    }  # fmt: skip


def roles(conversation) -> str:
    return "".join(message.role[0] for message in conversation.messages)


def contents(conversation) -> list[str]:
    return [message.content for message in conversation.messages]


@pytest.mark.parametrize("form", ["otlp", "otlp lines", "spans", "printed"])
def test_spans_of_the_newer_conventions_become_a_conversation(form, tmp_path):
    """WB-REC-02 `otel-genai`, WB-REC-04a: chained in the order of their start, which isn't that of the file."""
    path = tmp_path / "noname"
    if form == "spans":
        jsonl(path, plain_span(2, SECOND), plain_span(1, FIRST))
    elif form == "otlp lines":
        jsonl(path, export(otlp_span(2, SECOND)), export(otlp_span(1, FIRST)))
    else:
        document(path, export(otlp_span(2, SECOND), otlp_span(1, FIRST)), indent=2 if form == "printed" else None)
    recordings = load_recordings(path)
    (conversation,) = recordings
    assert recordings.formats == {"otel-genai": 1}
    assert (conversation.id, conversation.instruction, conversation.model) == ("conv", "Be brief.", "m")
    assert (roles(conversation), contents(conversation)) == ("uata", ["Where is 7731?", "", "in Wuhan", "In Wuhan."])
    asking = conversation.events[1]
    assert asking.message.tool_calls[0].arguments == '{"order":7731}'
    assert asking.message.reasoning_content == "look"
    assert asking.response.choices[0].finish_reason == "tool_call"
    assert conversation.events[2].message.tool_name == "track"
    assert conversation.tools[0].parameters_json == '{"type":"object"}'
    assert asking.time_ns - conversation.events[0].time_ns == 5 * 10**8
    assert recordings.problems == ()


def test_usage_includes_the_cache_whatever_the_instrumentation_thinks(tmp_path):
    """WB-REC-07: parts that don't fit into the input were reported beside it."""
    apart = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.cache_read.input_tokens": 60}
    path = jsonl(tmp_path / "a.jsonl", export(otlp_span(1, FIRST), otlp_span(2, {**SECOND, **apart})))
    (conversation,) = load_recordings(path)
    assert list(conversation.usage.values()) == [
        Usage(100, 9, cached_tokens=60, cache_creation_tokens=30, cache_read_tokens=60),
        Usage(70, None, cached_tokens=60, cache_read_tokens=60),
    ]


OLD = {"gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "m"}
OLD_EVENTS = [
    ("gen_ai.system.message", {"content": "Be brief."}),
    ("gen_ai.user.message", {"content": "Where is 7731?"}),
    ("gen_ai.assistant.message", {
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "track", "arguments": "{}"}}]}),
    ("gen_ai.tool.message", {"id": "c1", "content": "in Wuhan"}),
    ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "In Wuhan."}}),
]  # fmt: skip


def test_an_event_per_message_is_the_older_convention(tmp_path):
    """WB-REC-02 `otel-genai`."""
    span = otlp_span(1, OLD, events=OLD_EVENTS)
    (conversation,) = load_recordings(document(tmp_path / "a.json", export(span)))
    assert (conversation.instruction, roles(conversation)) == ("Be brief.", "uata")
    assert contents(conversation)[-1] == "In Wuhan."
    assert conversation.events[1].message.tool_calls[0].name == "track"


def test_log_records_bring_the_messages_of_spans_that_have_none(tmp_path):
    """WB-REC-02 `otel-genai`: the older conventions send them apart."""
    records = [
        {"spanId": "s1", "attributes": listed({"event.name": name}), "body": value_of(body)}
        for name, body in OLD_EVENTS
    ]
    logs = {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": records}]}]}
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", logs, export(otlp_span(1, OLD))))
    assert (recordings[0].instruction, roles(recordings[0])) == ("Be brief.", "uata")
    assert recordings.problems == ()


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "llm.request.type": "chat", "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Be brief.",
            "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "Where?",
            "gen_ai.prompt.2.role": "assistant", "gen_ai.prompt.2.tool_calls.0.id": "c1",
            "gen_ai.prompt.2.tool_calls.0.name": "track", "gen_ai.prompt.2.tool_calls.0.arguments": "{}",
            "gen_ai.prompt.3.role": "tool", "gen_ai.prompt.3.tool_call_id": "c1", "gen_ai.prompt.3.content": "there",
            "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "There.",
            "gen_ai.completion.0.finish_reason": "stop", "gen_ai.usage.prompt_tokens": 20,
            "gen_ai.usage.completion_tokens": 2, "llm.usage.total_tokens": 22,
            "llm.request.functions.0.name": "track", "llm.request.functions.0.parameters": '{"type":"object"}',
        },
        {
            "openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": "Be brief.", "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.contents.0.message_content.text": "Where?",
            "llm.input_messages.1.message.contents.0.message_content.type": "text",
            "llm.input_messages.2.message.role": "assistant",
            "llm.input_messages.2.message.tool_calls.0.tool_call.id": "c1",
            "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "track",
            "llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments": "{}",
            "llm.input_messages.3.message.role": "tool", "llm.input_messages.3.message.tool_call_id": "c1",
            "llm.input_messages.3.message.content": "there", "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "There.", "llm.token_count.prompt": 20,
            "llm.token_count.completion": 2, "llm.token_count.total": 22, "llm.model_name": "m",
        },
    ],
    ids=["numbered", "openinference"],
)  # fmt: skip
def test_numbered_attributes_are_read_too(attributes, tmp_path):
    """WB-REC-02 `otel-genai`."""
    (conversation,) = load_recordings(jsonl(tmp_path / "a.jsonl", plain_span(1, attributes)))
    assert (conversation.instruction, roles(conversation)) == ("Be brief.", "uata")
    assert contents(conversation) == ["Where?", "", "there", "There."]
    assert (conversation.events[1].message.tool_calls[0].id, conversation.events[2].message.tool_id) == ("c1", "c1")
    assert list(conversation.usage.values()) == [Usage(20, 2, 22)]


def test_spans_of_agents_and_tools_are_counted_not_read_twice(tmp_path):
    """WB-REC-07: the loss report."""
    agent = {**newer(INPUT, SAYING), "gen_ai.operation.name": "invoke_agent"}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "track"}
    outer = newer(INPUT, SAYING)
    path = document(
        tmp_path / "a.json",
        export(
            otlp_span(0, agent), otlp_span(1, FIRST), otlp_span(2, tool), otlp_span(3, SECOND, parent="s4"),
            otlp_span(4, outer), otlp_span(5, {**agent, "gen_ai.conversation.id": "other"}, trace="t2"),
        ),
    )  # fmt: skip
    recordings = load_recordings(path)
    assert [(c.id, len(c.calls)) for c in recordings] == [("conv", 2), ("other", 1)]
    assert any("no model calls (agents, tools" in loss and ": 2 " in loss for loss in recordings.losses)
    assert any("around another span" in loss and ": 1 " in loss for loss in recordings.losses)


def test_calls_without_content_are_named_with_what_to_do(tmp_path):
    """WB-REC-07: zero messages is an error."""
    path = jsonl(tmp_path / "a.jsonl", export(otlp_span(1, OLD), otlp_span(2, OLD)))
    with pytest.raises(RecordingError, match="2 model calls hold no messages") as refused:
        load_recordings(path)
    assert "capture" in refused.value.hint
    both = load_recordings(jsonl(tmp_path / "b.jsonl", export(otlp_span(1, OLD), otlp_span(2, FIRST))))
    assert len(both) == 1
    assert texts(both) == ["a model call holds no messages; let the instrumentation capture message content"]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"gen_ai.input.messages": "no json"}, "gen_ai.input.messages is a text, expected an array"),
        ({"gen_ai.input.messages": [7]}, "message 1 is a number, expected an object"),
        ({"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "hologram"}]}]},
         'message 1, part 1: type "hologram" is not known'),
        ({"gen_ai.input.messages": [{"role": "narrator", "parts": []}]},
         'role "narrator"; expected system, user, assistant or tool'),
        ({"gen_ai.usage.input_tokens": -3}, "usage: input -3 is negative"),
        ({"gen_ai.conversation.id": " "}, "gen_ai.conversation.id is empty"),
    ],
    ids=["B08", "B08-message", "B18", "B15", "B28", "B27"],
)  # fmt: skip
def test_a_broken_span_costs_only_itself(attributes, expected, tmp_path):
    """WB-REC-05."""
    good = {**FIRST, "gen_ai.conversation.id": "good"}
    recordings = load_recordings(
        jsonl(tmp_path / "a.jsonl", plain_span(1, good), plain_span(2, {**SECOND, **attributes}))
    )
    assert [(p.line, p.text) for p in recordings.problems] == [(2, expected)]
    assert [c.id for c in recordings] == ["good"]


def test_spans_become_the_same_native_recording(tmp_path):
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", plain_span(1, FIRST), plain_span(2, SECOND)))
    write_recording(tmp_path / "native.jsonl", recordings)
    assert list(load_recordings(tmp_path / "native.jsonl")) == list(recordings)
