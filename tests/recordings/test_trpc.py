"""Sessions of tRPC-Agent-Go as JSON: what the engine needs of them comes through as it was."""

from __future__ import annotations

import base64
import json

import pytest

from tests.recordings.files import document, jsonl, texts
from workbench.clock import ns_from_text
from workbench.model.types import Usage
from workbench.recordings import load_recordings, write_recording


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def event(number: int, author: str, message=None, **more):
    """An event as Go writes it."""
    choices = [] if message is None else [{"index": 0, "message": message}]
    return {
        "id": f"e{number}", "author": author, "timestamp": f"2026-03-02T09:00:0{number}.000000001+08:00",
        "requestID": "req-1", "invocationId": "inv-1", "branch": author, "filterKey": "shop/support",
        "object": "chat.completion", "created": 0, "model": "m", "choices": choices, "done": True,
        "is_partial": False, "version": 1, **more,
    }  # fmt: skip


CALL = {
    "type": "function", "id": "c1",
    "function": {"name": "track", "arguments": b64('{"order":"7731"}'), "description": "finds"},
}  # fmt: skip
EVENTS = [
    event(1, "user", {"role": "user", "content": "订单 7731 到哪了？"}, branch="", object=""),
    event(2, "support", {"role": "assistant", "content": "", "tool_calls": [CALL]},
          usage={"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15,
                 "prompt_tokens_details": {"cached_tokens": 8, "cache_read_tokens": 8, "cache_creation_tokens": 0}}),
    event(3, "support", {"role": "tool", "content": "in Wuhan", "tool_id": "c1", "tool_name": "track"},
          stateDelta={"seen": b64("7731"), "gone": None}),
    event(4, "support", {"role": "assistant", "content": "在武汉。"},
          usage={"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
]  # fmt: skip
SUMMARY = {
    "summary": "The order is in Wuhan.", "updated_at": "2026-03-02T09:00:04+08:00",
    "boundary": {"version": 1, "filter_key": "shop", "cutoff_at": "2026-03-02T01:00:04Z", "last_event_id": "e4"},
}  # fmt: skip


def session(name="s1", events=EVENTS, **more):
    return {"id": name, "appName": "shop", "userID": "u1", "state": {"tier": b64("gold")}, "events": events,
            "summaries": {"shop": SUMMARY}, "updatedAt": "2026-03-02T09:00:04Z", **more}  # fmt: skip


def test_a_session_keeps_its_names_keys_and_ids(tmp_path):
    """WB-REC-02 `trpc`, WB-REC-04 rule 6, SUM-DM-05, SUM-DM-07."""
    recordings = load_recordings(document(tmp_path / "sessions.json", [session(), session("s2")], indent=2))
    assert recordings.formats == {"trpc": 2}
    conversation = recordings["s1"]
    assert (conversation.app_name, conversation.user_id, conversation.model) == ("shop", "u1", "m")
    assert [e.id for e in conversation.events] == ["e1", "e2", "e3", "e4"]
    assert [e.author for e in conversation.events] == ["user", "support", "support", "support"]
    assert {(e.filter_key, e.request_id, e.invocation_id) for e in conversation.events} == {
        ("shop/support", "req-1", "inv-1")
    }
    assert conversation.events[0].time_ns == ns_from_text("2026-03-02T09:00:01.000000001+08:00")
    assert not conversation.assumed_time
    assert (len(conversation.requests), len(conversation.calls)) == (1, 2)
    assert any("instruction and tools" in loss for loss in recordings.losses)
    assert recordings.problems == ()


def test_bytes_are_read_from_base64(tmp_path):
    """SUM-DM-02, SUM-DM-13, SUM-DM-14: arguments, state changes (null is kept), state."""
    (conversation,) = load_recordings(jsonl(tmp_path / "s.jsonl", session()))
    assert conversation.events[1].message.tool_calls[0].arguments == '{"order":"7731"}'
    assert conversation.events[2].state_delta == {"seen": b"7731", "gone": None}
    assert conversation.metadata["state"] == {"tier": "gold"}


def test_summaries_are_kept_as_they_were_stored(tmp_path):
    """SUM-DM-09, SUM-DM-10: for comparing, not for replaying."""
    (conversation,) = load_recordings(jsonl(tmp_path / "s.jsonl", session()))
    assert conversation.metadata["summaries"] == {"shop": SUMMARY}


def test_usage_of_zeros_was_not_reported(tmp_path):
    """WB-REC-07."""
    (conversation,) = load_recordings(jsonl(tmp_path / "s.jsonl", session()))
    assert conversation.usage == {
        "e2": Usage(12, 3, 15, cached_tokens=8, cache_creation_tokens=0, cache_read_tokens=8),
    }


def test_pieces_of_streams_and_repeated_answers_are_left_out(tmp_path):
    """SUM-DM-06: partial events never were part of the session; the loss report counts them."""
    answer = {"role": "assistant", "content": "在武汉。"}
    events = [
        *EVENTS[:3],
        event(5, "support", {"role": "assistant", "content": "在"}, is_partial=True, done=False),
        EVENTS[3],
        event(6, "shop", answer, object="runner.completion"),
    ]
    recordings = load_recordings(jsonl(tmp_path / "s.jsonl", session(events=events)))
    assert [e.id for e in recordings[0].events] == ["e1", "e2", "e3", "e4"]
    assert any("pieces of streamed answers: 1" in loss for loss in recordings.losses)
    assert any("repeat the last answer: 1" in loss for loss in recordings.losses)


def test_an_event_of_the_old_form_takes_its_branch_as_filter_key(tmp_path):
    """SUM-DM-05: version 0 had no filter key."""
    events = [
        event(1, "user", {"role": "user", "content": "a"}, filterKey="", branch=""),
        event(2, "support", {"role": "assistant", "content": "b"}, filterKey="", version=0),
    ]
    (conversation,) = load_recordings(jsonl(tmp_path / "s.jsonl", session(events=events)))
    assert [e.filter_key for e in conversation.events] == ["shop", "support"]


def test_the_snake_case_spelling_and_nested_responses_are_read(tmp_path):
    """WB-REC-01: found from the content."""
    value = {
        "app_name": "shop", "user_id": "u", "session_id": "s9",
        "events": [
            {"id": "a", "author": "user", "invocation_id": "i", "timestamp": 1772413200.5,
             "response": {"choices": [{"message": {"role": "user", "content": "hi"}}]}},
            {"id": "b", "author": "bot", "invocation_id": "i", "timestamp": 1772413201,
             "message": {"role": "assistant", "tool_calls": [{"id": "c", "name": "f", "arguments": "{}"}]}},
        ],
    }  # fmt: skip
    (conversation,) = load_recordings(document(tmp_path / "s.json", {"sessions": [value]}))
    assert (conversation.id, conversation.app_name) == ("s9", "shop")
    assert conversation.events[1].message.tool_calls[0].name == "f"
    assert conversation.events[0].time_ns == 1772413200_500_000_000


def test_a_session_becomes_the_same_native_recording(tmp_path):
    """WB-REC-02: nothing that the conversation holds is lost on the way."""
    recordings = load_recordings(jsonl(tmp_path / "s.jsonl", session()))
    write_recording(tmp_path / "native.jsonl", recordings)
    assert list(load_recordings(tmp_path / "native.jsonl")) == list(recordings)


def test_a_session_without_times_gets_the_synthetic_clock(tmp_path):
    """WB-REC-03, B22: Go's zero time is none."""
    events = [{**e, "timestamp": "0001-01-01T00:00:00Z"} for e in EVENTS]
    recordings = load_recordings(jsonl(tmp_path / "s.jsonl", session(events=events)))
    assert recordings[0].assumed_time
    assert any("synthetic clock" in loss for loss in recordings.losses)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "session has no events; nothing to replay"),
        ([EVENTS[0], EVENTS[0]], 'event id "e1" was used by event 1'),
        ([EVENTS[0], 7], "event 2 is a number, expected an object"),
        ([EVENTS[0], {**EVENTS[1], "timestamp": None}], "event 2 has no timestamp; add one or load with --assume-order"),
        ([event(1, "user", {"role": "narrator", "content": "x"})],
         'role "narrator"; expected system, user, assistant or tool'),
        ([event(1, "user", {"role": "user", "content": 7})], "message 1: content is a number, expected text or parts"),
        ([EVENTS[0], {**EVENTS[1], "usage": {"total_tokens": 10, "prompt_tokens": 12, "completion_tokens": 3}}],
         "usage: total 10 is less than prompt 12 + completion 3"),
        ([{**EVENTS[0], "stateDelta": 7}, EVENTS[1]], "event 1: stateDelta is a number, expected an object"),
    ],
    ids=["empty", "B26", "B08", "B22", "B15", "B17", "B28", "state"],
)  # fmt: skip
def test_a_broken_session_costs_only_itself(events, expected, tmp_path):
    """WB-REC-05."""
    recordings = load_recordings(jsonl(tmp_path / "s.jsonl", session(), session("bad", events), session("s3")))
    assert texts(recordings) == [expected]
    assert [c.id for c in recordings] == ["s1", "s3"]


def test_an_empty_session_id_is_a_problem(tmp_path):
    """B27."""
    recordings = load_recordings(jsonl(tmp_path / "s.jsonl", session(), session(" ")))
    assert texts(recordings) == ["session id is empty"]


def test_times_that_run_backwards_are_kept_in_order_and_noted(tmp_path):
    """B25."""
    events = [EVENTS[0], {**EVENTS[3], "timestamp": "2026-03-02T08:00:01+08:00"}]
    recordings = load_recordings(jsonl(tmp_path / "s.jsonl", session(events=events)))
    assert texts(recordings) == ["goes back 3 600 s at event 2"]
    assert [e.id for e in recordings[0].events] == ["e1", "e4"]


def test_several_times_that_run_backwards_are_one_sentence(tmp_path):
    """B25: the note has no hint, so nothing may be left of the sign in front of one."""
    times = ("09:00:00", "08:59:30", "08:59:20", "08:59:10")
    events = [{**EVENTS[0], "id": f"e{i}", "timestamp": f"2026-03-02T{at}+08:00"} for i, at in enumerate(times)]
    (note,) = load_recordings(jsonl(tmp_path / "s.jsonl", session(events=events))).problems
    assert note.text == "goes back 30 s at event 2 (and 2 more)"
    assert str(note).endswith(":1: goes back 30 s at event 2 (and 2 more)")


def test_sessions_in_the_shape_of_the_vectors_are_read(shared_path, tmp_path):
    """WB-REC-02 `trpc`: every session that was recorded from the reference, its texts and keys unchanged."""
    sessions = []
    for path in sorted((shared_path / "vectors").glob("*.json")):
        for case in json.loads(path.read_text(encoding="utf-8")):
            found = case["input"].get("session") if isinstance(case, dict) and "input" in case else None
            events = found.get("events") if isinstance(found, dict) else None
            if events and all("message" in e and "timestamp" in e and not e.get("partial") for e in events):
                ids = [e.get("id", "") for e in events]
                if len(set(ids)) == len(ids):
                    sessions.append({**found, "session_id": f"{path.stem}/{case['id']}"})
    assert len(sessions) > 100
    recordings = load_recordings(jsonl(tmp_path / "vectors.jsonl", *sessions), assume_order=True)
    by_id = {c.id: c for c in recordings}
    refused = [problem for problem in recordings.problems if problem.severity == "problem"]
    assert len(by_id) + len(refused) == len(sessions)
    assert len(refused) <= len(sessions) // 20, refused
    for found in sessions:
        if (conversation := by_id.get(found["session_id"])) is not None:
            assert [e.message.content for e in conversation.events] == [
                e["message"].get("content", "") for e in found["events"]
            ]
