"""From messages to events and requests: the rules that all importers share."""

from __future__ import annotations

import pytest

from tests.recordings.files import ask, jsonl, load_messages, result, say, texts
from workbench.clock import NS_PER_S, ns_from_text, text_from_ns
from workbench.errors import ConfigError
from workbench.model.types import Message, response_of
from workbench.recordings import load_recordings
from workbench.recordings.types import Conversation, split_requests
from workbench.session.types import Event


def contents(events) -> list[str]:
    return [message.content for event in events for message in event.messages]


def test_a_request_starts_at_each_human_message(tmp_path):
    """WB-REC-04 rule 1."""
    conversation = load_messages(
        tmp_path, say("user", "a"), say("assistant", "b"), say("user", "c"), say("assistant", "d")
    )
    assert [(contents(request.inputs), contents(request.steps)) for request in conversation.requests] == [
        (["a"], ["b"]),
        (["c"], ["d"]),
    ]
    assert [request.id for request in conversation.requests] == ["one-00001:r1", "one-00001:r2"]
    assert [event.invocation_id for event in conversation.events][-1] == "one-00001:i2"


def test_consecutive_human_messages_form_one_request(tmp_path):
    """WB-REC-04 rule 1."""
    conversation = load_messages(tmp_path, say("user", "a"), say("user", "b"), say("assistant", "c"))
    (request,) = conversation.requests
    assert contents(request.earlier) == ["a"]
    assert request.message.message.content == "b"
    assert len(conversation.calls) == 1


def test_parallel_tool_results_are_one_event_with_one_choice_per_call(tmp_path):
    """WB-REC-04 rule 2, ASM-RUN-09."""
    conversation = load_messages(
        tmp_path,
        say("user"),
        ask(("c1", "search"), ("c2", "open")),
        result("c1", "one"),
        result("c2", "two"),
        say("assistant", "done"),
    )
    tools = conversation.events[2]
    assert [(m.role, m.tool_id, m.tool_name, m.content) for m in tools.messages] == [
        ("tool", "c1", "search", "one"),
        ("tool", "c2", "open", "two"),
    ]
    assert tools.author == "assistant"
    assert [choice.index for choice in tools.response.choices] == [0, 1]
    assert len(conversation.events) == 4


def test_an_answer_after_an_answer_is_a_continuation_call(tmp_path):
    """WB-REC-04 rule 3."""
    conversation = load_messages(tmp_path, say("user"), say("assistant", "a"), say("assistant", "b"))
    assert [call.continuation for call in conversation.calls] == [False, True]
    assert len(conversation.requests) == 1
    assert conversation.calls[1].before is conversation.calls[0].event


def test_an_answer_before_any_human_message_is_a_greeting(tmp_path):
    """WB-REC-04 rules 4 and 5."""
    conversation = load_messages(tmp_path, say("assistant", "welcome"), say("user", "a"), say("assistant", "b"))
    assert contents(conversation.seed_events) == ["welcome"]
    assert conversation.greetings == 1
    assert len(conversation.calls) == 1
    assert conversation.seed_events[0].request_id == "one-00001:r0"


def test_a_trailing_human_message_is_a_request_without_a_call(tmp_path):
    """WB-REC-04 rule 4."""
    conversation = load_messages(tmp_path, say("user", "a"), say("assistant", "b"), say("user", "bye"))
    assert len(conversation.requests) == 2
    assert conversation.requests[1].steps == ()
    assert len(conversation.calls) == 1


def test_imported_events_have_the_replays_keys_authors_and_ids(tmp_path):
    """WB-REC-04 rule 6."""
    conversation = load_messages(tmp_path, say("user"), ask(("c1", "search")), result("c1"), say("assistant"))
    assert {event.filter_key for event in conversation.events} == {"replay"}
    assert conversation.app_name == "replay"
    assert [event.author for event in conversation.events] == ["user", "assistant", "assistant", "assistant"]
    assert [event.id for event in conversation.events] == [f"one-00001:0000{n}" for n in range(1, 5)]


def test_leading_system_messages_are_the_instruction_and_later_ones_stay(tmp_path):
    """WB-REC-04 rule 7."""
    conversation = load_messages(
        tmp_path,
        say("system", "be kind"),
        say("developer", "be brief"),
        say("user", "a"),
        say("system", "it is noon"),
        say("assistant", "b"),
    )
    assert conversation.instruction == "be kind\n\nbe brief"
    assert [event.author for event in conversation.events] == ["user", "system", "assistant"]
    assert [(len(request.inputs), len(request.steps)) for request in conversation.requests] == [(1, 2)]


def test_a_system_message_between_two_human_ones_stays_between_them(tmp_path):
    conversation = load_messages(
        tmp_path, say("user", "a"), say("system", "s"), say("user", "b"), say("assistant", "c")
    )
    (request,) = conversation.requests
    assert contents(request.inputs) == ["a", "s", "b"]


def test_the_older_names_of_roles_are_known(tmp_path):
    """WB-REC-04 rule 7: function = tool; a result without an id answers the open call."""
    conversation = load_messages(
        tmp_path,
        say("user"),
        say("assistant", None, function_call={"name": "search", "arguments": '{"q": 1}'}),
        say("function", "found", name="search"),
        say("assistant", "done"),
    )
    call = conversation.events[1].message.tool_calls[0]
    answer = conversation.events[2].message
    assert call.id
    assert (answer.tool_id, answer.tool_name, call.arguments) == (call.id, "search", '{"q": 1}')


# --- times -----------------------------------------------------------------------------------------------


def test_a_recording_without_times_gets_the_synthetic_clock(tmp_path):
    """WB-REC-03: 30 s before each request, 2 s between events in it; and it is said."""
    conversation = load_messages(tmp_path, say("user"), say("assistant"), say("user"), say("assistant"))
    start = ns_from_text("2026-01-01T00:00:00Z")
    assert [(event.time_ns - start) // NS_PER_S for event in conversation.events] == [0, 2, 32, 34]
    assert conversation.assumed_time
    recordings = load_recordings(tmp_path / "one.jsonl")
    assert recordings.problems == ()
    assert any("synthetic clock" in loss for loss in recordings.losses)


def test_the_synthetic_clock_can_be_set(tmp_path):
    """WB-REC-03."""
    conversation = load_messages(
        tmp_path, say("user"), say("assistant"), say("user"), options={"gap_s": 600, "step_s": 0.5}
    )
    first, second, third = (event.time_ns for event in conversation.events)
    assert (second - first, third - second) == (NS_PER_S // 2, 600 * NS_PER_S)


@pytest.mark.parametrize(
    ("raw", "options", "expected"),
    [
        ("2026-03-01T10:00:00.123456789Z", {}, "2026-03-01T10:00:00.123456789Z"),
        ("2026-03-01T10:00:00+09:00", {}, "2026-03-01T01:00:00Z"),
        ("2026-03-01 10:00", {"zone": "+0900"}, "2026-03-01T01:00:00Z"),
        ("2026-03-01 10:00", {"zone": "-08"}, "2026-03-01T18:00:00Z"),
        ("2026-03-01 10:00", {"zone": "UTC"}, "2026-03-01T10:00:00Z"),
        (1_772_359_200, {}, "2026-03-01T10:00:00Z"),
        (1_772_359_200.5, {}, "2026-03-01T10:00:00.5Z"),
        (1_772_359_200_250, {"time_unit": "ms"}, "2026-03-01T10:00:00.25Z"),
        (1_772_359_200_000_000_001, {"time_unit": "ns"}, "2026-03-01T10:00:00.000000001Z"),
        (32_503_679_999, {}, "2999-12-31T23:59:59Z"),
        ("0026-03-01T10:00:00Z", {}, "0026-03-01T10:00:00Z"),
    ],
)
def test_times_are_read_in_every_spelling(raw, options, expected, tmp_path):
    """WB-REC-03."""
    conversation = load_messages(tmp_path, say("user", timestamp=raw), options=options)
    assert conversation.events[0].time_ns == ns_from_text(expected)
    assert text_from_ns(conversation.events[0].time_ns) == expected
    assert not conversation.assumed_time


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("yesterday", 'timestamp "yesterday" is not a date and time; write it as RFC 3339'),
        ("2026-02-30T10:00:00Z", 'timestamp "2026-02-30T10:00:00Z" is not a date and time; write it as RFC 3339'),
        (True, "timestamp is true or false, expected a text or a number"),
        ([1], "timestamp is an array of 1, expected a text or a number"),
        (-1, "timestamp -1 is before 1970"),
        (1e308, "timestamp is in the year far away; milliseconds? use --time-unit ms"),
        (32_503_680_000, "timestamp is in the year 3000; milliseconds? use --time-unit ms"),
    ],
)
def test_what_is_no_time_is_said(raw, expected, tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"messages": [say("user", timestamp=raw)]}, {"messages": [say("user")]})
    assert texts(load_recordings(path)) == [expected]


def test_missing_times_take_that_of_the_event_before_when_asked_to(tmp_path):
    """B22: --assume-order."""
    conversation = load_messages(
        tmp_path,
        say("user", "a"),
        say("assistant", "b", timestamp="2026-03-01T10:00:00Z"),
        say("user", "c"),
        options={"assume_order": True},
    )
    assert {event.time_ns for event in conversation.events} == {ns_from_text("2026-03-01T10:00:00Z")}


def test_notes_of_one_kind_are_counted_together(tmp_path):
    messages = [say("user"), *(result(f"c{n}") for n in range(3))]
    path = jsonl(tmp_path / "a.jsonl", {"messages": messages})
    assert texts(load_recordings(path)) == ['tool result "c0" answers no earlier call; kept (and 2 more)']


@pytest.mark.parametrize(
    "options",
    [
        {"gap_s": -1},
        {"step_s": float("nan")},
        {"observations": "nobody"},
        {"time_unit": "minutes"},
        {"zone": "Mars/Olympus"},
        {"zone": "+99:00"},
        {"map": "user"},
        {"map": "usr=a"},
        {"map": "speaker=a"},
        {"max_line_mb": 0},
        {"format": "openai"},
    ],
    ids=str,
)
def test_options_that_are_not_allowed_are_refused(options, tmp_path):
    with pytest.raises(ConfigError):
        load_recordings(jsonl(tmp_path / "a.jsonl", {"messages": [say("user")]}), **options)


# --- the view of requests --------------------------------------------------------------------------------


def event(role: str, text: str, request_id: str = "") -> Event:
    return Event(id=text, author=role, request_id=request_id, response=response_of(Message(role=role, content=text)))


def shape(events: list[Event]) -> list[tuple[list[str], list[str]]]:
    _, requests = split_requests("c", events)
    return [(contents(request.inputs), contents(request.steps)) for request in requests]


def test_source_request_ids_decide_where_requests_start():
    """WB-REC-04 rule 1: source request ids win."""
    assert shape([event("user", "a", "1"), event("user", "b", "2"), event("assistant", "c", "2")]) == [
        (["a"], []),
        (["b"], ["c"]),
    ]
    assert shape([event("user", "a", "1"), event("assistant", "b", "1"), event("user", "c", "1")]) == [
        (["a"], ["b", "c"])
    ]


def test_events_of_a_request_without_a_human_message_stay_in_the_one_before():
    assert shape([event("user", "a", "1"), event("assistant", "b", "1"), event("assistant", "c", "2")]) == [
        (["a"], ["b", "c"])
    ]


def test_every_event_is_in_exactly_one_place():
    events = [
        event(role, str(i))
        for i, role in enumerate(["assistant", "system", "user", "user", "tool", "assistant", "user"])
    ]
    conversation = Conversation("c", tuple(events))
    walked = list(conversation.seed_events)
    for request in conversation.requests:
        walked += [*request.inputs, *request.steps]
    assert walked == events
    assert repr(conversation) == "Conversation('c', 7 events, 1 calls)"
