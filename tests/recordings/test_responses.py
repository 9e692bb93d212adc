"""Item lists and logged requests of OpenAI's newer interface."""

from __future__ import annotations

import pytest

from tests.recordings.files import document, jsonl, say, texts
from workbench.clock import ns_from_text
from workbench.model.types import Usage
from workbench.recordings import load_recordings, write_recording

THOUGHT = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "look it up"}]}
CALL = {"type": "function_call", "call_id": "c1", "name": "track", "arguments": '{"order":7731}'}
OTHER = {"type": "function_call", "call_id": "c2", "name": "price", "arguments": "{}"}
RESULTS = [
    {"type": "function_call_output", "call_id": "c1", "output": "in Wuhan"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "5 EUR"}]},
]
SAYING = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "In Wuhan, 5 EUR."}]}
ITEMS = [say("user", "Where is 7731?"), THOUGHT, CALL, OTHER, *RESULTS, SAYING]
TOOLS = [{"type": "function", "name": "track", "parameters": {"type": "object"}}]


def roles(conversation) -> str:
    return "".join(message.role[0] for message in conversation.messages)


def contents(conversation) -> list[str]:
    return [message.content for message in conversation.messages]


@pytest.mark.parametrize(
    "value",
    [ITEMS, {"items": ITEMS}, {"input": ITEMS, "model": "m"}, {"body": {"input": ITEMS}, "custom_id": "x"}],
    ids=["list", "items", "input", "batch"],
)
@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "printed"])
def test_reasoning_and_calls_that_follow_each_other_are_one_answer(value, indent, tmp_path):
    """WB-REC-02 `openai-responses`, WB-REC-04 rule 3."""
    recordings = load_recordings(document(tmp_path / "noname", value, indent=indent))
    (conversation,) = recordings
    assert recordings.formats == {"openai-responses": 1}
    assert (roles(conversation), len(conversation.calls)) == ("uatta", 2)
    assert contents(conversation) == ["Where is 7731?", "", "in Wuhan", "5 EUR", "In Wuhan, 5 EUR."]
    asking = conversation.events[1].message
    assert [call.id for call in asking.tool_calls] == ["c1", "c2"]
    assert asking.reasoning_content == "look it up"
    assert recordings.problems == ()


def test_one_item_per_line_is_a_conversation_per_session(tmp_path):
    """REL-11: and a broken line costs the one it stands in."""
    lines = [{"session_id": session, **item} for session in ("A", "B") for item in ITEMS]
    path = jsonl(tmp_path / "a.jsonl", *lines)
    assert [(c.id, roles(c)) for c in load_recordings(path)] == [("A", "uatta"), ("B", "uatta")]
    broken = path.read_text(encoding="utf-8").splitlines()
    broken[1] = "{'x'"
    path.write_text("\n".join(broken), encoding="utf-8")
    recordings = load_recordings(path)
    assert [c.id for c in recordings] == ["B"]
    assert [(p.line, p.severity) for p in recordings.problems] == [(2, "problem")]


def logged(number, items, output, **request):
    return {
        "timestamp": f"2026-03-02T09:00:0{number}Z",
        "request": {"model": "m", "instructions": "Be brief.", "tools": TOOLS, "input": items, **request},
        "response": {
            "id": f"resp_{number}", "object": "response", "model": "m-1", "status": "completed", "output": output,
            "usage": {"input_tokens": 20, "output_tokens": 4, "total_tokens": 24,
                      "input_tokens_details": {"cached_tokens": 16}, "output_tokens_details": {"reasoning_tokens": 2}},
        },
    }  # fmt: skip


@pytest.mark.parametrize("chained", ["history", "id"])
def test_logged_requests_are_chained_by_history_or_by_id(chained, tmp_path):
    """WB-REC-04a, WB-REC-07."""
    if chained == "history":
        second = logged(2, ITEMS[:-1], [SAYING])
    else:
        second = logged(2, RESULTS, [SAYING], previous_response_id="resp_1")
    path = jsonl(tmp_path / "log.jsonl", logged(1, "Where is 7731?", [THOUGHT, CALL, OTHER]), second)
    recordings = load_recordings(path)
    (conversation,) = recordings
    assert (conversation.instruction, conversation.model, roles(conversation)) == ("Be brief.", "m", "uatta")
    usage = Usage(20, 4, 24, cached_tokens=16, reasoning_tokens=2)
    assert list(conversation.usage.values()) == [usage, usage]
    assert conversation.events[-1].time_ns == ns_from_text("2026-03-02T09:00:02Z")
    assert conversation.tools[0].name == "track"
    write_recording(tmp_path / "native.jsonl", recordings)
    assert list(load_recordings(tmp_path / "native.jsonl")) == [conversation]


def test_what_cannot_be_resolved_or_carried_over_is_counted(tmp_path):
    """WB-REC-07: the loss report."""
    search = {"type": "web_search_call", "id": "w1", "status": "completed"}
    items = [say("user", "a"), {"type": "item_reference", "id": "x"}, search, SAYING]
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", items))
    assert '"web_search_call"' in recordings[0].events[1].message.content
    assert any("own tools" in loss for loss in recordings.losses)
    assert any("references to items" in loss for loss in recordings.losses)
    unknown = logged(1, "a", [SAYING], previous_response_id="resp_0")
    assert any("isn't in the file" in loss for loss in load_recordings(jsonl(tmp_path / "b.jsonl", unknown)).losses)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "hologram"}, 'message 2: type "hologram" is not known'),
        (7, "message 2 is a number, expected an object"),
        ({"type": "message", "role": "narrator", "content": "x"},
         'role "narrator"; expected system, user, assistant or tool'),
        ({"type": "message", "role": "user", "content": 7}, "message 2: content is a number, expected text or parts"),
    ],
    ids=["B18", "B08", "B15", "B17"],
)  # fmt: skip
def test_a_broken_list_costs_only_itself(item, expected, tmp_path):
    """WB-REC-05."""
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", ITEMS, [ITEMS[0], item, CALL], ITEMS))
    assert texts(recordings) == [expected]
    assert len(recordings) == 2


# --- sharegpt ------------------------------------------------------------------------------------------


def turn(speaker, value):
    return {"from": speaker, "value": value}


def test_sharegpt_has_turns_with_from_and_value(tmp_path):
    """WB-REC-02 `sharegpt`."""
    call = turn("function_call", '{"name": "track", "arguments": {"order": 7731}}')
    value = {
        "id": "s1",
        "system": "Be brief.",
        "tools": '[{"name": "track", "parameters": {}}]',
        "conversations": [turn("human", "Where?"), call, turn("observation", "Wuhan"), turn("gpt", "In Wuhan.")],
    }
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", value))
    (conversation,) = recordings
    assert recordings.formats == {"sharegpt": 1}
    assert (conversation.id, conversation.instruction, roles(conversation)) == ("s1", "Be brief.", "uata")
    asked = conversation.events[1].message.tool_calls[0]
    assert (asked.name, asked.arguments) == ("track", '{"order":7731}')
    assert conversation.events[2].message.tool_id == asked.id != ""
    assert conversation.tools[0].name == "track"
    assert any("synthetic clock" in loss for loss in recordings.losses)


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (turn("narrator", "x"), 'role "narrator"; expected human, gpt, system, function_call or observation'),
        (turn("human", 7), "message 2: content is a number, expected text or parts"),
        (turn("gpt", None), "message 2 has neither content nor tool calls"),
    ],
    ids=["B15", "B17", "B16"],
)
def test_a_broken_sharegpt_row_costs_only_itself(bad, expected, tmp_path):
    """WB-REC-05."""
    good = {"conversations": [turn("human", "a"), turn("gpt", "b")]}
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", good, {"conversations": [turn("human", "a"), bad]}))
    assert texts(recordings) == [expected]
    assert len(recordings) == 1
