"""Messages with content blocks: conversations, logged requests, usage."""

from __future__ import annotations

import pytest

from tests.recordings.files import document, jsonl, say, texts
from workbench.clock import ns_from_text
from workbench.model.types import Usage
from workbench.recordings import load_recordings

TOOLS = [{"name": "track", "description": "finds a parcel", "input_schema": {"type": "object"}}]
SYSTEM = [{"type": "text", "text": "Answer briefly.", "cache_control": {"type": "ephemeral"}}]
CALL = {"type": "tool_use", "id": "toolu_1", "name": "track", "input": {"order": 7731}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "in Wuhan"}]}
THOUGHT = {"type": "thinking", "thinking": "look it up", "signature": "sig"}
ROUND = [
    say("user", "Where is 7731?"),
    say("assistant", [THOUGHT, {"type": "text", "text": "I'll look."}, CALL]),
    say("user", [RESULT]),
    say("assistant", [{"type": "text", "text": "In Wuhan."}]),
]


def response(number: int, content, **usage):
    return {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-x", "content": content,
        "stop_reason": "tool_use" if CALL in content else "end_turn", "usage": {"output_tokens": 10, **usage},
    }  # fmt: skip


def roles(conversation) -> str:
    return "".join(message.role[0] for message in conversation.messages)


def contents(conversation) -> list[str]:
    return [message.content for message in conversation.messages]


@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "printed"])
def test_a_conversation_with_blocks_is_read_with_its_system_prompt(indent, tmp_path):
    """WB-REC-02 `anthropic`, WB-REC-04 rules 2 and 7: a message of tool results starts no request."""
    value = {"model": "claude-x", "system": SYSTEM, "tools": TOOLS, "messages": ROUND, "id": "c1"}
    recordings = load_recordings(document(tmp_path / "a.json", value, indent=indent))
    (conversation,) = recordings
    assert recordings.formats == {"anthropic": 1}
    assert (conversation.id, conversation.instruction, conversation.model) == ("c1", "Answer briefly.", "claude-x")
    assert (roles(conversation), len(conversation.requests), len(conversation.calls)) == ("uata", 1, 2)
    assert contents(conversation) == ["Where is 7731?", "I'll look.", "in Wuhan", "In Wuhan."]
    asking, found = conversation.events[1].message, conversation.events[2].message
    assert (asking.reasoning_content, asking.reasoning_signature) == ("look it up", "sig")
    assert asking.tool_calls[0].arguments == '{"order":7731}'
    assert (found.tool_id, found.tool_name) == ("toolu_1", "track")
    assert conversation.tools[0].parameters_json == '{"type":"object"}'
    assert recordings.problems == ()


@pytest.mark.parametrize(
    "value",
    [
        {"messages": ROUND},
        ROUND,
        {"system": "Answer briefly.", "messages": [say("user", "a"), say("assistant", "b")]},
        {"anthropic_version": "2023-06-01", "messages": [say("user", "a"), say("assistant", "b")]},
        {"request": {"messages": [say("user", "a")]}, "response": response(1, [{"type": "text", "text": "b"}])},
        {"body": {"tools": TOOLS, "messages": [say("user", "a")]}, "response": {"body": response(1, [CALL])}},
        {"custom_id": "x", "params": {"system": "s", "messages": [say("user", "a"), say("assistant", "b")]}},
        {
            "params": {"messages": [say("user", "a")]},
            "result": {"type": "succeeded", "message": response(1, [{"type": "text", "text": "b"}])},
        },
    ],
    ids=["blocks", "list", "system", "version", "log", "log-body", "batch", "batch-result"],
)
def test_every_form_is_found_from_its_content(value, tmp_path):
    """WB-REC-01."""
    recordings = load_recordings(jsonl(tmp_path / "noname", value))
    assert recordings.formats == {"anthropic": 1}
    assert len(recordings[0].calls) >= 1


@pytest.mark.parametrize(
    "value",
    [
        {"messages": [say("user", "a"), say("assistant", "b")]},
        {"system": "s", "messages": [say("user"), say("assistant", "b", tool_calls=[])]},
        {"messages": [say("user", [{"type": "text", "text": "a"}])]},
    ],
    ids=["plain", "calls", "text-parts"],
)
def test_other_message_lists_stay_what_they_are(value, tmp_path):
    assert load_recordings(jsonl(tmp_path / "noname", value, value)).formats == {"openai-chat": 2}


@pytest.mark.parametrize("layout", ["lines", "printed"])
def test_one_message_per_row_is_a_conversation(layout, tmp_path):
    """WB-REC-01: the first message could be of either interface; B30: an unfinished last one is left out."""
    path = tmp_path / "noname"
    if layout == "lines":
        jsonl(path, *({"session_id": "A", **message} for message in ROUND))
        path.write_text(path.read_text(encoding="utf-8") + '{"role": "us', encoding="utf-8")
    else:
        document(path, ROUND, indent=2)
    recordings = load_recordings(path)
    assert [(c.format, roles(c)) for c in recordings] == [("anthropic", "uata")]
    if layout == "lines":
        assert recordings[0].id == "A"
        assert texts(recordings) == ["last message is unfinished; left out"]


def test_one_row_with_blocks_decides_for_the_file(tmp_path):
    """WB-REC-01: a first row that could be of either interface doesn't."""
    plain = {"messages": [say("user", "a"), say("assistant", "b")]}
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", plain, {"messages": ROUND}))
    assert recordings.formats == {"anthropic": 2}
    assert recordings.problems == ()


def test_logged_requests_are_chained_and_keep_their_usage(tmp_path):
    """WB-REC-04a, WB-REC-07: input, cache writes and reads are disjoint and sum to the bill."""
    first = {
        "request": {"model": "claude-x", "system": SYSTEM, "tools": TOOLS, "messages": ROUND[:1]},
        "response": response(1, ROUND[1]["content"], input_tokens=3, cache_creation_input_tokens=1200,
                             cache_read_input_tokens=0,
                             cache_creation={"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 1000}),
        "timestamp": "2026-03-02T09:00:00Z",
    }  # fmt: skip
    second = {
        "request": {"model": "claude-x", "system": SYSTEM, "tools": TOOLS, "messages": ROUND[:3]},
        "response": response(2, ROUND[3]["content"], input_tokens=40, cache_read_input_tokens=1200),
        "timestamp": "2026-03-02T09:00:05Z",
    }
    recordings = load_recordings(jsonl(tmp_path / "log.jsonl", first, second))
    (conversation,) = recordings
    assert (roles(conversation), conversation.instruction) == ("uata", "Answer briefly.")
    assert conversation.events[3].time_ns == ns_from_text("2026-03-02T09:00:05Z")
    assert list(conversation.usage.values()) == [
        Usage(prompt_tokens=1203, completion_tokens=10, cached_tokens=0, cache_creation_tokens=1200,
              cache_read_tokens=0),
        Usage(prompt_tokens=1240, completion_tokens=10, cached_tokens=1200, cache_read_tokens=1200),
    ]  # fmt: skip
    split = {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 1000}
    assert conversation.events[1].extensions == {"cache_creation": split}
    assert conversation.events[1].response.choices[0].finish_reason == "tool_use"
    assert any("chained" in loss for loss in recordings.losses)


def test_a_shorter_history_starts_a_branch_and_a_session_keeps_requests_apart(tmp_path):
    """WB-REC-04a."""

    def logged(session, number, *messages):
        return {
            "session_id": session,
            "request": {"system": "s", "messages": list(messages)},
            "response": response(number, [{"type": "text", "text": f"answer {number}"}]),
        }

    path = jsonl(
        tmp_path / "log.jsonl",
        logged("A", 1, say("user", "hi")),
        logged("B", 2, say("user", "hi")),
        logged("A", 3, say("user", "hi"), say("assistant", "answer 1"), say("user", "more")),
        logged("A", 4, say("user", "edited")),
    )
    recordings = load_recordings(path)
    assert [(c.id, len(c.calls)) for c in recordings] == [("A", 2), ("B", 1), ("A~2", 1)]


def test_rows_of_one_response_are_one_answer_and_counted_once(tmp_path):
    """WB-REC-04 rule 3, WB-REC-07."""
    usage = {"input_tokens": 5, "output_tokens": 2}
    parts = [
        say("assistant", [block], id="msg_1", usage=usage) for block in (THOUGHT, {"type": "text", "text": "b"}, CALL)
    ]
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", {"messages": [say("user", "a"), *parts]}))
    (conversation,) = recordings
    assert (roles(conversation), conversation.merged_rows) == ("ua", 2)
    assert list(conversation.usage.values()) == [Usage(prompt_tokens=5, completion_tokens=2)]
    logged = {"request": {"messages": [say("user", "a")]}, "response": response(1, [CALL], input_tokens=7)}
    again = load_recordings(jsonl(tmp_path / "log.jsonl", logged, logged))
    assert len(again) == 1
    assert any("logged twice" in loss for loss in again.losses)


def test_what_a_provider_did_itself_stays_in_the_answer_and_is_told(tmp_path):
    """WB-REC-07: the loss report."""
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    value = {
        "system": "s",
        "messages": [say("user", "a"), say("assistant", [search, found, {"type": "text", "text": "b"}])],
    }
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", value))
    assert '"web_search"' in recordings[0].events[1].message.content
    assert any("provider's own tools" in loss and ": 2 " in loss for loss in recordings.losses)


def test_a_request_that_failed_has_no_answer(tmp_path):
    logged = {
        "request": {"system": "s", "messages": [say("user", "a")]},
        "response": {"type": "error", "error": {"type": "overloaded_error"}},
    }
    (conversation,) = load_recordings(jsonl(tmp_path / "log.jsonl", logged))
    assert (roles(conversation), len(conversation.calls)) == ("u", 0)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (say("assistant", [{"type": "hologram"}]), 'message 2, part 1: type "hologram" is not known'),
        (say("assistant", 7), "message 2: content is a number, expected text or parts"),
        (say("narrator", "x"), 'role "narrator"; expected system, user, assistant or tool'),
        (say("assistant", [CALL, CALL]), 'call id "toolu_1" was used at line 2'),
        (say("assistant", "b", usage={"input_tokens": -1}), "usage: input -1 is negative"),
    ],
    ids=["B18", "B17", "B15", "B20", "B28"],
)
def test_a_broken_conversation_costs_only_itself(message, expected, tmp_path):
    """WB-REC-05."""
    good = {"system": "s", "messages": ROUND}
    bad = {"system": "s", "messages": [say("user", "a"), message]}
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", good, bad, good))
    assert texts(recordings) == [expected]
    assert [problem.line for problem in recordings.problems] == [2]
    assert len(recordings) == 2
