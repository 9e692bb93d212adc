"""LangChain's message objects in their three spellings, and LangSmith's runs."""

from __future__ import annotations

import pytest

from tests.recordings.files import document, jsonl, texts
from workbench.clock import ns_from_text
from workbench.model.types import Usage
from workbench.recordings import load_recordings, write_recording

CALL = {"name": "track", "args": {"order": 7731}, "id": "c1", "type": "tool_call"}
USAGE = {
    "input_tokens": 100, "output_tokens": 5, "total_tokens": 105,
    "input_token_details": {"cache_read": 60, "cache_creation": 30}, "output_token_details": {"reasoning": 2},
}  # fmt: skip
FIELDS = [
    ("system", {"content": "Be brief."}),
    ("human", {"content": "Where is 7731?"}),
    ("ai", {"content": "", "tool_calls": [CALL], "usage_metadata": USAGE, "response_metadata": {"model_name": "m"}}),
    ("tool", {"content": "in Wuhan", "tool_call_id": "c1", "name": "track"}),
    ("ai", {"content": "In Wuhan."}),
]
CLASSES = {"system": "SystemMessage", "human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}


def as_data(kind, fields):
    return {"type": kind, "data": fields}


def as_constructor(kind, fields):
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", CLASSES[kind]], "kwargs": fields}


def as_dump(kind, fields):
    return {"type": kind, "additional_kwargs": {}, **fields}


SPELLINGS = [as_data, as_constructor, as_dump]


def roles(conversation) -> str:
    return "".join(message.role[0] for message in conversation.messages)


def contents(conversation) -> list[str]:
    return [message.content for message in conversation.messages]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("wrapped", [True, False], ids=["messages", "list"])
def test_messages_are_read_in_every_spelling(spelling, wrapped, tmp_path):
    """WB-REC-02 `langchain`, WB-REC-07."""
    messages = [spelling(*pair) for pair in FIELDS]
    value = {"messages": messages, "thread_id": "t1"} if wrapped else messages
    recordings = load_recordings(jsonl(tmp_path / "noname", value, value))
    conversation = recordings[0]
    assert recordings.formats == {"langchain": 2}
    assert (conversation.instruction, roles(conversation), conversation.model) == ("Be brief.", "uata", "m")
    assert contents(conversation) == ["Where is 7731?", "", "in Wuhan", "In Wuhan."]
    assert conversation.events[1].message.tool_calls[0].arguments == '{"order":7731}'
    assert (conversation.events[2].message.tool_id, conversation.events[2].message.tool_name) == ("c1", "track")
    usage = Usage(100, 5, 105, cached_tokens=60, cache_creation_tokens=30, cache_read_tokens=60, reasoning_tokens=2)
    assert list(conversation.usage.values()) == [usage]
    assert conversation.id.startswith("t1" if wrapped else "noname")
    assert recordings.problems == ()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_one_message_per_row_is_a_conversation(spelling, tmp_path):
    """WB-REC-01: as lines, and as the elements of a printed array."""
    messages = [spelling(*pair) for pair in FIELDS]
    for path in (jsonl(tmp_path / "a.jsonl", *messages), document(tmp_path / "a.json", messages, indent=2)):
        assert [(c.format, roles(c)) for c in load_recordings(path)] == [("langchain", "uata")]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_runs_of_chat_models_are_chained(spelling, tmp_path):
    """WB-REC-02 `langchain`, WB-REC-04a: the thread is in the metadata, times are UTC."""
    messages = [spelling(*pair) for pair in FIELDS]

    def run(number, n_messages):
        return {
            "id": f"run-{number}", "run_type": "llm", "start_time": f"2026-03-02T09:00:0{number}.500000",
            "end_time": f"2026-03-02T09:00:0{number}.900000", "inputs": {"messages": [messages[:n_messages]]},
            "outputs": {"generations": [[{"text": "", "message": messages[n_messages]}]]},
            "extra": {"metadata": {"thread_id": "t1"}, "invocation_params": {"tools": [{"name": "track"}]}},
        }  # fmt: skip

    chain = {"id": "x", "run_type": "chain", "inputs": {}, "outputs": {}}
    recordings = load_recordings(jsonl(tmp_path / "runs.jsonl", run(2, 4), chain, run(1, 2)))
    (conversation,) = recordings
    assert (conversation.id, roles(conversation), conversation.tools[0].name) == ("t1", "uata", "track")
    assert conversation.events[-1].time_ns == ns_from_text("2026-03-02T09:00:02.9Z")
    assert any("no model calls (chains" in loss for loss in recordings.losses)
    write_recording(tmp_path / "native.jsonl", recordings)
    assert list(load_recordings(tmp_path / "native.jsonl")) == [conversation]


def test_blocks_of_an_answer_and_a_run_that_failed(tmp_path):
    blocks = [
        {"type": "thinking", "thinking": "t"},
        {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "c1", "name": "track", "input": {}},
    ]
    answer = as_dump("ai", {"content": blocks, "tool_calls": [CALL]})
    (conversation,) = load_recordings(
        document(tmp_path / "a.json", {"messages": [as_dump("human", {"content": "a"}), answer]})
    )
    message = conversation.events[1].message
    assert (message.content, message.reasoning_content, len(message.tool_calls)) == ("b", "t", 1)
    failed = {"run_type": "chat_model", "inputs": {"messages": [as_dump("human", {"content": "a"})]}, "outputs": None}
    (asked,) = load_recordings(jsonl(tmp_path / "b.jsonl", failed))
    assert (roles(asked), len(asked.calls)) == ("u", 0)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (as_data("narrator", {"content": "x"}), 'role "narrator"; expected human, ai, system or tool'),
        (7, "message 2 is a number, expected a message object"),
        (as_data("ai", {"content": 7}), "message 2: content is a number, expected text or parts"),
        (as_data("ai", {"content": "b", "usage_metadata": {"input_tokens": -1}}), "usage: input -1 is negative"),
    ],
    ids=["B15", "B08", "B17", "B28"],
)
def test_a_broken_list_costs_only_itself(message, expected, tmp_path):
    """WB-REC-05."""
    good = [as_data("human", {"content": "a"}), as_data("ai", {"content": "b"})]
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", {"messages": good}, {"messages": [good[0], message]}))
    assert texts(recordings) == [expected]
    assert len(recordings) == 1
