"""Message lists in all the forms that files hold them in."""

from __future__ import annotations

import json

import pytest

from tests.recordings.files import ask, document, jsonl, load_messages, result, say, texts
from workbench.errors import RecordingError
from workbench.model.types import ContentPart, Usage
from workbench.recordings import load_recordings

MESSAGES = [say("user", "a"), say("assistant", "b")]
TOOL = {"type": "function", "function": {"name": "search", "description": "finds", "parameters": {"type": "object"}}}


def contents(conversation) -> list[str]:
    return [message.content for message in conversation.messages]


@pytest.mark.parametrize(
    "value",
    [
        {"messages": MESSAGES},
        MESSAGES,
        {"custom_id": "x", "method": "POST", "body": {"model": "m", "messages": MESSAGES}},
        {"request": {"messages": MESSAGES[:1]}, "response": {"choices": [{"message": say("assistant", "b")}]}},
        {"messages": MESSAGES[:1], "response": {"body": {"choices": [{"message": {"content": "b"}}]}}},
        {"messages": MESSAGES[:1], "completion": "b"},
        {"messages": MESSAGES[:1], "choices": [{"message": {"role": "assistant", "content": "b"}}]},
        {"input": {"messages": MESSAGES[:1]}, "preferred_output": MESSAGES[1:], "non_preferred_output": []},
    ],
    ids=["messages", "list", "batch", "log", "batch-result", "completion", "choices", "preference"],
)
@pytest.mark.parametrize("layout", ["lines", "one", "printed", "array", "printed-array", "concatenated"])
def test_every_form_is_found_in_every_layout(value, layout, tmp_path):
    """WB-REC-01, WB-REC-02: found from the content, not the name."""
    path = tmp_path / "noname"
    if layout == "lines":
        jsonl(path, value, value)
    elif layout == "concatenated":
        path.write_text(json.dumps(value, indent=1) + "\n" + json.dumps(value, indent=1))
    else:
        document(path, [value] if "array" in layout else value, indent=4 if "printed" in layout else None)
    recordings = load_recordings(path)
    assert recordings.formats == {"openai-chat": 2 if layout in {"lines", "concatenated"} else 1}
    assert {tuple(contents(conversation)) for conversation in recordings} == {("a", "b")}
    assert recordings.problems == ()


def test_what_stands_around_the_messages_is_kept(tmp_path):
    """WB-REC-03."""
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    conversation = load_messages(
        tmp_path,
        *MESSAGES,
        id="conv-7",
        model="gpt",
        tools=[TOOL],
        usage=usage,
        user="ana",
        metadata={"k": 1},
        probes=[{"question": "q", "answer": "a"}],
    )
    assert (conversation.id, conversation.model, conversation.user_id) == ("conv-7", "gpt", "ana")
    assert conversation.metadata == {"metadata": {"k": 1}, "probes": [{"question": "q", "answer": "a"}]}
    (tool,) = conversation.tools
    assert (tool.name, tool.description, tool.parameters_json) == ("search", "finds", '{"type":"object"}')
    assert json.loads(tool.declaration_json) == TOOL
    expected = Usage(prompt_tokens=12, completion_tokens=3, total_tokens=15, cached_tokens=8, reasoning_tokens=2)
    assert conversation.usage == {"conv-7:00002": expected}


def test_usage_that_is_not_reported_is_not_zero(tmp_path):
    """WB-REC-07."""
    conversation = load_messages(tmp_path, *MESSAGES, usage={"prompt_tokens": 12, "completion_tokens": None})
    (usage,) = conversation.usage.values()
    assert usage.completion_tokens is None
    assert usage.cached_tokens is None


def test_usage_beside_a_message_belongs_to_it(tmp_path):
    conversation = load_messages(tmp_path, *MESSAGES[:1], say("assistant", "b", usage={"prompt_tokens": 5}), *MESSAGES)
    assert [key[-5:] for key in conversation.usage] == ["00002"]


@pytest.mark.parametrize(
    ("content", "text", "parts"),
    [
        ([{"type": "text", "text": "a"}], "a", ()),
        (
            [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:1"}}],
            "",
            (ContentPart("text", "a"), ContentPart("image", url="data:1")),
        ),
        (
            [{"type": "input_audio", "input_audio": {"data": "xyz"}}, {"type": "file", "file": {"filename": "f.pdf"}}],
            "",
            (ContentPart("audio", url="xyz"), ContentPart("file", name="f.pdf")),
        ),
        ([{"type": "image_url", "image_url": "https://example.com/a.png"}], "", (ContentPart("image", url="https://example.com/a.png"),)),
        (["a", "b"], "", (ContentPart("text", "a"), ContentPart("text", "b"))),
    ],
)  # fmt: skip
def test_content_parts_are_kept(content, text, parts, tmp_path):
    conversation = load_messages(tmp_path, say("user", content))
    assert conversation.events[0].message.content == text
    assert conversation.events[0].message.content_parts == parts


def test_an_answer_may_be_only_reasoning_or_a_refusal(tmp_path):
    conversation = load_messages(
        tmp_path,
        say("user"),
        say("assistant", None, reasoning_content="hm"),
        say("user"),
        say("assistant", None, refusal="no"),
    )
    assert conversation.events[1].message.reasoning_content == "hm"
    assert conversation.events[3].message.content == "no"


def test_parsed_tool_arguments_become_text(tmp_path):
    answer = say("assistant", None, tool_calls=[{"id": "k", "function": {"name": "f", "arguments": {"汉": [1, 2]}}}])
    conversation = load_messages(tmp_path, say("user"), answer)
    assert conversation.events[1].message.tool_calls[0].arguments == '{"汉":[1,2]}'


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"messages": 7}, "messages is a number, expected an array"),
        ({"message": []}, 'no messages; expected a "messages" list'),
        ({"messages": []}, "no messages; expected at least one that isn't a system message"),
        ({"messages": [say("system")]}, "no messages; expected at least one that isn't a system message"),
        ({"messages": ["hi"]}, "message 1 is a text, expected an object"),
        ({"messages": [{"content": "hi"}]}, "role is missing; expected system, user, assistant or tool"),
        ({"messages": [say("user", True)]}, "message 1: content is true or false, expected text or parts"),
        ({"messages": [say("user", {"a": 1})]}, "message 1: content is an object, expected text or parts"),
        ({"messages": [say("user", [])]}, "message 1 has neither content nor tool calls"),
        ({"messages": [say("assistant", None, tool_calls=3)]}, "message 1: tool_calls is a number, expected an array"),
        ({"messages": [say("assistant", None, tool_calls=[{}])]}, "message 1: a tool call has no name"),
        ({"messages": MESSAGES, "tools": {}}, "tools is an object, expected an array"),
        ({"messages": MESSAGES, "tools": [3]}, "tool 1 is a number, expected an object"),
        ({"messages": MESSAGES, "tools": [{}]}, "tool 1 has no name"),
        ({"messages": MESSAGES, "usage": 3}, "usage is a number, expected an object"),
        ({"messages": MESSAGES, "usage": {"prompt_tokens": "12"}}, "usage: prompt is not a whole number"),
        (
            {
                "messages": MESSAGES,
                "usage": {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 15}},
            },
            "usage: cached 15 is more than prompt 12",
        ),
        ({"messages": MESSAGES, "response": 7}, "response is a number, expected an object"),
    ],
)
def test_what_cannot_be_read_is_said(record, expected, tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"messages": MESSAGES}, record)
    recordings = load_recordings(path)
    assert texts(recordings) == [expected]
    assert len(recordings) == 1


# --- one message per line --------------------------------------------------------------------------------


def test_one_message_per_line_makes_one_conversation_per_session(tmp_path):
    rows = [
        say("system", "s", session_id="x"),
        say("user", "a", session_id="x"),
        say("assistant", "b", session_id="x"),
        say("user", "c", session_id="y"),
    ]
    recordings = load_recordings(jsonl(tmp_path / "rows.jsonl", *rows))
    assert [(c.id, c.instruction, contents(c)) for c in recordings] == [("x", "s", ["a", "b"]), ("y", "", ["c"])]


def test_ids_and_call_ids_of_loose_messages_name_their_lines(tmp_path):
    """B20, B26: the line is that of the message."""
    rows = [say("user", "a", id="e1"), say("assistant", "b", id="e2"), say("user", "c", id="e1"), say("user", "d")]
    with pytest.raises(RecordingError) as refused:
        load_recordings(jsonl(tmp_path / "rows.jsonl", *rows))
    assert (refused.value.reason, refused.value.line) == ('event id "e1" was used at line 1', 3)
    rows = [say("user"), ask(("call_1", "f")), say("assistant", "x"), ask(("call_1", "f"))]
    with pytest.raises(RecordingError) as refused:
        load_recordings(jsonl(tmp_path / "rows.jsonl", *rows))
    assert (refused.value.reason, refused.value.line) == ('call id "call_1" was used at line 2', 4)


def test_an_empty_session_id_of_a_loose_message_is_a_problem(tmp_path):
    """B27."""
    path = jsonl(tmp_path / "rows.jsonl", say("user", session_id="x"), say("user", session_id=""))
    recordings = load_recordings(path)
    assert texts(recordings) == ["session id is empty"]
    assert [c.id for c in recordings] == ["x"]


# --- ids -------------------------------------------------------------------------------------------------


def test_conversations_without_an_id_are_numbered_by_file(tmp_path):
    jsonl(tmp_path / "a.jsonl", MESSAGES, MESSAGES)
    jsonl(tmp_path / "b.jsonl", MESSAGES)
    assert [c.id for c in load_recordings(tmp_path)] == ["a-00001", "a-00002", "b-00001"]


def test_an_id_that_is_taken_gets_a_number(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", *({"id": "same", "messages": MESSAGES} for _ in range(3)))
    assert [c.id for c in load_recordings(path)] == ["same", "same~2", "same~3"]


def test_observations_of_agents_can_be_read_as_tool_results(tmp_path):
    """WB-REC-04 rule 2: --observations tool."""
    messages = [say("user", "task"), say("assistant", "ls"), say("user", "file.txt"), say("assistant", "done")]
    as_people = load_messages(tmp_path, *messages)
    as_tools = load_messages(tmp_path, *messages, options={"observations": "tool"})
    assert (len(as_people.requests), len(as_people.calls)) == (2, 2)
    assert (len(as_tools.requests), len(as_tools.calls)) == (1, 2)
    asked, answered = as_tools.events[1].message, as_tools.events[2].message
    assert asked.tool_calls[0].id == answered.tool_id
    assert (asked.content, answered.content, answered.role) == ("ls", "file.txt", "tool")


# --- logged requests -------------------------------------------------------------------------------------


def logged(messages, answer, **more):
    response = {
        "id": f"r-{answer}",
        "choices": [{"message": {"role": "assistant", "content": answer, "refusal": None}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10 * len(messages), "completion_tokens": 1},
        "model": "m-1",
    }
    return {"request": {"model": "m", "messages": messages, "tools": [TOOL]}, "response": response, **more}


def turns(*contents_of_turns: str):
    return [say(("user", "assistant")[i % 2], content) for i, content in enumerate(contents_of_turns)]


def test_logged_requests_are_chained_by_their_history(tmp_path):
    """WB-REC-04a: the longest equal prefix; usage goes to its call."""
    system = say("system", "s")
    path = jsonl(
        tmp_path / "log.jsonl",
        logged([system, *turns("a")], "b", created=1_772_359_200),
        logged([system, *turns("x")], "y", created=1_772_359_201),
        logged([system, *turns("a", "b", "c")], "d", created=1_772_359_260),
        logged([system, *turns("x", "y", "z")], "w", created=1_772_359_261),
    )
    recordings = load_recordings(path)
    assert [contents(c) for c in recordings] == [["a", "b", "c", "d"], ["x", "y", "z", "w"]]
    first = recordings[0]
    assert [usage.prompt_tokens for usage in first.usage.values()] == [20, 40]
    assert [event.time_ns // 10**9 - 1_772_359_200 for event in first.events] == [0, 0, 60, 60]
    assert (first.instruction, first.model, first.tools[0].name) == ("s", "m", "search")
    assert [event.response.model for event in first.events] == ["", "m-1", "", "m-1"]
    assert first.events[1].response.choices[0].finish_reason == "stop"
    assert any("chained" in loss for loss in recordings.losses)


def test_a_shorter_or_edited_history_starts_a_new_branch(tmp_path):
    """WB-REC-04a."""
    path = jsonl(
        tmp_path / "log.jsonl",
        logged(turns("a"), "b", session_id="s"),
        logged(turns("a", "b", "c"), "d", session_id="s"),
        logged(turns("c"), "e", session_id="s"),
        logged(turns("a", "B", "c"), "f", session_id="s"),
        logged(turns("a", "b", "c", "d", "g"), "h", session_id="s"),
    )
    recordings = load_recordings(path)
    assert [(c.id, contents(c)) for c in recordings] == [
        ("s", ["a", "b", "c", "d", "g", "h"]),
        ("s~2", ["c", "e"]),
        ("s~3", ["a", "B", "c", "f"]),
    ]
    assert any("branches" in loss for loss in recordings.losses)


def test_equal_histories_of_two_sessions_stay_apart(tmp_path):
    """WB-REC-04a: the session id decides before the prefix."""
    path = jsonl(
        tmp_path / "log.jsonl",
        logged(turns("a"), "b", session_id="s"),
        logged(turns("a"), "b", metadata={"session_id": "t"}),
        logged(turns("a", "b", "c"), "d", session_id="t"),
    )
    assert {c.id: contents(c) for c in load_recordings(path)} == {"s": ["a", "b"], "t": ["a", "b", "c", "d"]}


def test_a_tool_loop_in_a_log_is_one_conversation(tmp_path):
    """WB-REC-04a."""
    question, call = say("user", "q"), ask(("k1", "search"))
    path = jsonl(
        tmp_path / "log.jsonl",
        {"messages": [question], "response": {"choices": [{"message": call}]}},
        {"messages": [question, call, result("k1")], "response": {"choices": [{"message": say("assistant", "done")}]}},
    )
    (conversation,) = load_recordings(path)
    assert (len(conversation.requests), len(conversation.calls), len(conversation.events)) == (1, 2, 4)


def test_an_instruction_that_changes_does_not_break_the_chain(tmp_path):
    """WB-REC-04a: many agents put the time there; the change is said."""
    path = jsonl(
        tmp_path / "log.jsonl",
        logged([say("system", "it is noon"), *turns("a")], "b"),
        logged([say("system", "it is one"), *turns("a", "b", "c")], "d"),
    )
    recordings = load_recordings(path)
    assert [(c.instruction, contents(c)) for c in recordings] == [("it is one", ["a", "b", "c", "d"])]
    assert any("instruction changed" in loss for loss in recordings.losses)


def test_a_request_that_failed_leaves_no_answer(tmp_path):
    path = jsonl(tmp_path / "log.jsonl", {"messages": turns("a"), "response": {"choices": []}}, logged(turns("x"), "y"))
    assert [len(c.calls) for c in load_recordings(path)] == [0, 1]


def test_a_bad_log_line_costs_only_itself(tmp_path):
    """REL-11."""
    path = jsonl(
        tmp_path / "log.jsonl",
        logged(turns("a"), "b"),
        logged([say("narrator", "x")], "y"),
        logged(turns("a", "b", "c"), "d"),
    )
    recordings = load_recordings(path)
    assert [contents(c) for c in recordings] == [["a", "b", "c", "d"]]
    assert texts(recordings) == ['role "narrator"; expected system, user, assistant or tool']


@pytest.mark.parametrize(
    ("broken", "kept"),
    [
        (b"{'role': 'user'}", ["B"]),
        (b'{"session_id": "A", "role": "user", "content": }', ["B"]),
        (b'{"session_id": "B", "role": "user", "content": }', ["A"]),
    ],
    ids=["of no session", "of the one before", "of the next"],
)
def test_a_broken_line_costs_the_conversation_it_belongs_to(broken, kept, tmp_path):
    """REL-11, WB-REC-05: no half of it is taken for a whole one."""
    lines = [
        json.dumps(say(role, "x", session_id=session)).encode()
        for session in ("A", "B")
        for role in ("user", "assistant")
    ]
    path = tmp_path / "loose.jsonl"
    path.write_bytes(b"\n".join([*lines[:2], broken, *lines[2:]]) + b"\n")
    recordings = load_recordings(path)
    assert [(c.id, len(c.events)) for c in recordings] == [(kept[0], 2)]
    (problem,) = recordings.problems
    assert (problem.line, problem.outcome) == (3, "its conversation is left out, the others are kept")
