"""The native format: what is written is what is read, and a fault costs one conversation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recordings.files import texts
from workbench.errors import RecordingError
from workbench.model.types import (
    ASSISTANT,
    ROLES,
    TOOL,
    USER,
    Choice,
    ContentPart,
    Message,
    Response,
    ResponseError,
    ToolCall,
    ToolSpec,
    Usage,
    response_of,
)
from workbench.recordings import Conversation, Recordings, load_recordings, write_recording
from workbench.recordings.event_json import event_from_json
from workbench.session.event_json import event_to_json
from workbench.session.types import Event

TEXT = st.text(max_size=20) | st.sampled_from(
    ["\ud83d", "a\0b", "<|endoftext|>", "\u2028", "\x85", "\u202e", "汉あ한🙂"]
)
NAME = st.text(max_size=8)
COUNT = st.none() | st.integers(0, 10**12)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(NAME, children, max_size=3),
    max_leaves=5,
)
TIME_NS = st.integers(1, 253_402_300_799 * 10**9 + 999_999_999)

PARTS = st.builds(
    ContentPart, type=st.sampled_from(["text", "image", "audio", "video", "file"]), text=TEXT, url=NAME, name=NAME
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["", *ROLES]),
    content=TEXT,
    content_parts=st.lists(PARTS, max_size=2).map(tuple),
    tool_id=NAME,
    tool_name=NAME,
    reasoning_content=TEXT,
    reasoning_signature=NAME,
)
CALLS = st.builds(
    ToolCall,
    name=NAME,
    arguments=TEXT,
    type=NAME,
    description=NAME,
    strict=st.none() | st.booleans(),
    index=st.none() | st.integers(0, 9),
    extra_fields=st.lists(st.tuples(NAME, TEXT), max_size=2).map(tuple),
)
USAGES = st.builds(
    Usage,
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    cache_creation_tokens=COUNT,
    cache_read_tokens=COUNT,
    reasoning_tokens=COUNT,
)
CHOICES = st.builds(
    Choice,
    message=MESSAGES,
    delta=st.just(Message()) | MESSAGES,
    index=st.integers(0, 5),
    finish_reason=NAME,
)
RESPONSES = st.builds(
    Response,
    choices=st.lists(CHOICES, max_size=2).map(tuple),
    id=NAME,
    object=NAME,
    model=NAME,
    usage=st.none() | USAGES,
    error=st.none() | st.builds(ResponseError, type=NAME, message=TEXT, code=NAME, param=NAME),
    created=st.integers(0, 2**40),
    time_ns=st.just(0) | TIME_NS,
    done=st.booleans(),
)
EVENTS = st.builds(
    Event,
    author=NAME,
    time_ns=TIME_NS,
    response=st.none() | RESPONSES,
    request_id=NAME,
    invocation_id=NAME,
    parent_invocation_id=NAME,
    branch=NAME,
    filter_key=NAME,
    tag=NAME,
    state_delta=st.dictionaries(NAME, st.none() | st.binary(max_size=8), max_size=2),
    skip_summarization=st.booleans(),
    extensions=st.dictionaries(NAME, JSON, max_size=2),
    version=st.integers(0, 3),
)
TOOLS = st.builds(
    ToolSpec, name=st.text(min_size=1, max_size=8), description=TEXT, parameters_json=NAME, declaration_json=NAME
)


@st.composite
def conversations(draw: Any) -> Conversation:
    events = [draw(EVENTS).replace(id=f"e{n}" if draw(st.booleans()) else "") for n in range(draw(st.integers(1, 4)))]
    if draw(st.booleans()):  # a call with its result
        call = Message(role=ASSISTANT, tool_calls=(draw(CALLS),))
        events.append(Event(id="call", time_ns=1, response=response_of(call)))
    return Conversation(
        id=draw(st.text(min_size=1, max_size=8).filter(str.strip)),
        events=tuple(events),
        instruction=draw(TEXT),
        tools=tuple(draw(st.lists(TOOLS, max_size=2))),
        model=draw(NAME),
        app_name=draw(st.text(min_size=1, max_size=8)),
        user_id=draw(st.text(min_size=1, max_size=8).filter(str.strip)),
        assumed_time=draw(st.booleans()),
        merged_rows=draw(st.integers(0, 5)),
        metadata=draw(st.dictionaries(NAME, JSON, max_size=2)),
    )


@given(written=st.lists(conversations(), min_size=1, max_size=2, unique_by=lambda item: item.id))
def test_what_is_written_is_what_is_read(written, tmp_path_factory):
    """WB-REC-02 `workbench`: exact round trip; BUG-28: also of half surrogate pairs and NUL."""
    path = tmp_path_factory.mktemp("native") / "all.jsonl"
    assert write_recording(path, written) == len(written)
    read = load_recordings(path)
    assert list(read) == written
    assert [c.content_hash for c in read] == [c.content_hash for c in written]
    assert all(problem.severity == "note" for problem in read.problems)


@given(event=EVENTS)
def test_an_event_survives_json(event):
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def conversation(name: str = "c", *, at: int = 1, text: str = "hello") -> Conversation:
    messages = [
        Message(USER, text),
        Message(ASSISTANT, tool_calls=(ToolCall("k1", "search", "{}"),)),
        Message(TOOL, "found", tool_id="k1", tool_name="search"),
        Message(ASSISTANT, "done"),
    ]
    return Conversation(
        name,
        tuple(
            Event(f"{name}:{n}", "user" if n == 1 else "assistant", (at + n) * 10**9, response_of(message))
            for n, message in enumerate(messages, 1)
        ),
    )


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def write_lines(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(lines))
    return path


@pytest.fixture
def three(tmp_path):
    """A file of three conversations of five lines, as lines."""
    path = tmp_path / "three.jsonl"
    write_recording(path, [conversation(name) for name in "abc"])
    return lines_of(path)


def changed(line: bytes, change: Any) -> bytes:
    value = json.loads(line)
    change(value)
    return json.dumps(value).encode() + b"\n"


def message_of(value: dict[str, Any]) -> dict[str, Any]:
    return value["response"]["choices"][0]["message"]


FAULTS = {
    "B05": (lambda line: line[:60] + b"\xff" + line[60:], "byte 0xff at column 61 is not UTF-8"),
    "B06": (lambda line: line[:50] + b"\n", "JSON ends early at column 50; the file may be cut"),
    "B07": (lambda line: line.replace(b'"id"', b"'id'"), "not JSON at column 17: expected double quotes"),
    "B09": (lambda line: line.replace(b'"id":', b'"id":"x","id":'), 'key "id" occurs twice'),
    "B10": (lambda line: line.replace(b'"id":', b'"x":NaN,"id":'), "x is not a finite number"),
    "B11": (lambda line: line.replace(b'"id":', b'"x":' + b"1" * 41 + b',"id":'), "number with 41 digits; at most 40"),
    "B12": (
        lambda line: line.replace(b'"id":', b'"x":' + b"[" * 64 + b"]" * 64 + b',"id":'),
        "nested deeper than 64 levels",
    ),
    "B15": (
        lambda line: changed(line, lambda value: message_of(value).update(role="narrator")),
        'role "narrator"; expected system, user, assistant or tool',
    ),
    "B16": (
        lambda line: changed(line, lambda value: message_of(value).pop("content")),
        "message 4 has neither content nor tool calls",
    ),
    "B17": (
        lambda line: changed(line, lambda value: message_of(value).update(content=7)),
        "message 4: content is a number, expected text or parts",
    ),
    "B18": (
        lambda line: changed(line, lambda value: message_of(value).update(content_parts=[{"type": "hologram"}])),
        'message 4, part 1: type "hologram" is not known',
    ),
    "B22": (
        lambda line: changed(line, lambda value: value.pop("time")),
        "event has no timestamp; add one or load with --assume-order",
    ),
    "B23": (
        lambda line: changed(line, lambda value: value.update(time="2026-01-01 10:00")),
        'timestamp "2026-01-01 10:00" has no zone; load with --zone',
    ),
    "B24": (
        lambda line: changed(line, lambda value: value.update(time=1_767_830_000_000)),
        "timestamp is in the year 57990; milliseconds? use --time-unit ms",
    ),
    "B26": (
        lambda line: changed(line, lambda value: value.update(id="b:1")),
        'event id "b:1" was used at line 7',
    ),
    "B28": (
        lambda line: changed(
            line,
            lambda value: value["response"].update(
                usage={"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 10}
            ),
        ),
        "usage: total 10 is less than prompt 12 + completion 3",
    ),
    "type": (
        lambda line: changed(line, lambda value: value.update(branch=5)),
        "branch is a number, expected a text",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_event_costs_its_conversation_only(name, three, tmp_path):
    """REL-11, B05 to B28 in the native format."""
    damage, expected = FAULTS[name]
    three[9] = damage(three[9])
    recordings = load_recordings(write_lines(tmp_path / "broken.jsonl", three))
    assert list(recordings) == [conversation("a"), conversation("c")]
    assert [(problem.text, problem.line, problem.severity) for problem in recordings.problems] == [
        (expected, 10, "problem")
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"id": ""}, "session id is empty"),
        ({"id": None}, "session id is empty"),
        ({"user_id": ""}, "user id is empty"),
        ({"instruction": 3}, "instruction is a number, expected a text"),
        ({"tools": [{"description": "d"}]}, "tool 1 has no name"),
        ({"tools": 7}, "tools is a number, expected an array"),
        ({"tools": [7]}, "tool 1 is a number, expected an object"),
    ],
)
def test_a_broken_session_line_costs_its_conversation_only(change, expected, three, tmp_path):
    """B27."""
    three[5] = changed(three[5], lambda value: value.update(change))
    recordings = load_recordings(write_lines(tmp_path / "broken.jsonl", three))
    assert [c.id for c in recordings] == ["a", "c"]
    assert [(problem.text, problem.line) for problem in recordings.problems] == [(expected, 6)]


def test_a_session_line_that_is_no_json_takes_its_events_with_it(three, tmp_path):
    """REL-11: the conversation before isn't blamed."""
    three[5] = three[5][:40] + b"\n"
    recordings = load_recordings(write_lines(tmp_path / "broken.jsonl", three))
    assert [c.id for c in recordings] == ["a", "c"]
    assert texts(recordings) == ["JSON ends early at column 40; the file may be cut"]


@pytest.mark.parametrize("place", [0, 5, 15], ids=["start", "middle", "end"])
@pytest.mark.parametrize(
    ("stray", "expected"),
    [
        (b"[1, 2, 3]\n", "expected an object, got an array of 3"),
        (b"\xff\xfe\n", "byte 0xff at column 1 is not UTF-8"),
        (b'{"role": "user"}\n', 'neither a session nor an event; expected "type": "session" or "event"'),
    ],
)
def test_a_stray_line_between_conversations_costs_none(stray, expected, place, three, tmp_path):
    """REL-11, B08."""
    three.insert(place, stray)
    recordings = load_recordings(write_lines(tmp_path / "stray.jsonl", three))
    assert list(recordings) == [conversation(name) for name in "abc"]
    assert [(problem.text, problem.line) for problem in recordings.problems] == [(expected, place + 1)]


def test_a_stray_line_inside_a_conversation_costs_that_one(three, tmp_path):
    """A line nobody can read might have been an event."""
    three.insert(8, b"[1, 2, 3]\n")
    recordings = load_recordings(write_lines(tmp_path / "stray.jsonl", three))
    assert [c.id for c in recordings] == ["a", "c"]
    assert len(recordings.problems) == 1


def test_events_before_any_session_are_said(three, tmp_path):
    recordings = load_recordings(write_lines(tmp_path / "headless.jsonl", three[4:]))
    assert texts(recordings) == ["event before any session line; start with one"]


def test_a_partial_last_event_is_left_out(three, tmp_path):
    """B30."""
    three[-1] = changed(three[-1], lambda value: value["response"].update(partial=True))
    recordings = load_recordings(write_lines(tmp_path / "partial.jsonl", three))
    assert len(recordings["c"].events) == 3
    assert texts(recordings) == ["last message is unfinished; left out"]


def test_odd_runes_are_kept_and_noted(tmp_path):
    """BUG-28, B13: the native format keeps what a store may hold."""
    path = tmp_path / "odd.jsonl"
    write_recording(path, [conversation(text="half \ud83d")])
    recordings = load_recordings(path)
    assert recordings[0].events[0].message.content == "half \ud83d"
    assert [(problem.text, problem.severity) for problem in recordings.problems] == [
        ("content has a broken Unicode escape at character 6; kept", "note")
    ]
    assert "\\ud83d" in path.read_text(encoding="ascii")


def test_a_session_without_events_is_a_problem(three, tmp_path):
    recordings = load_recordings(write_lines(tmp_path / "empty.jsonl", [*three, three[0].replace(b'"a"', b'"z"')]))
    assert texts(recordings) == ["session has no events"]


def test_events_without_any_time_get_the_synthetic_clock(tmp_path):
    """B22, WB-REC-03."""
    path = tmp_path / "timeless.jsonl"
    timeless = conversation().replace(events=tuple(event.replace(time_ns=0) for event in conversation().events))
    write_recording(path, [timeless])
    (read,) = load_recordings(path)
    assert read.assumed_time
    assert [event.timestamp.second for event in read.events] == [0, 2, 4, 6]


def test_missing_and_zoneless_times_follow_the_options(three, tmp_path):
    """B22, B23."""
    three[2] = changed(three[2], lambda value: value.pop("time"))
    three[3] = changed(three[3], lambda value: value.update(time="1970-01-01 09:00:09"))
    path = write_lines(tmp_path / "times.jsonl", three[:5])
    (read,) = load_recordings(path, assume_order=True, zone="+09:00")
    assert [event.time_ns // 10**9 for event in read.events] == [2, 2, 9, 5]


def test_a_newer_version_stops_the_load(three, tmp_path):
    """B29."""
    three[10] = three[10].replace(b'"version":1', b'"version":2')
    recordings = load_recordings(write_lines(tmp_path / "newer.jsonl", three))
    with pytest.raises(RecordingError, match="format version 2") as stopped:
        list(recordings)
    assert stopped.value.line == 11


def test_writing_replaces_the_file_in_one_step(tmp_path):
    """REL-07: the old file stays whole when writing fails half-way."""
    path = tmp_path / "kept.jsonl"
    write_recording(path, [conversation()])
    before = path.read_bytes()

    def interrupted():
        yield conversation("x")
        yield conversation("y").replace(metadata={"no": object()})

    with pytest.raises(RecordingError, match="no JSON form"):
        write_recording(path, interrupted())
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept.jsonl"]


def test_leftovers_of_a_killed_writer_are_removed_by_the_next(tmp_path):
    """REL-07."""
    leftover = tmp_path / ".a.jsonl.999999999.tmp"
    leftover.write_text("half")
    write_recording(tmp_path / "a.jsonl", [conversation()])
    assert not leftover.exists()


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(RecordingError, match="can't be written"):
        write_recording(tmp_path / "nowhere" / "a.jsonl", [conversation()])


def test_a_written_file_can_be_read_by_others_as_the_umask_says(tmp_path):
    path = tmp_path / "shared.jsonl"
    write_recording(path, [conversation()])
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_every_format_survives_the_native_one(shared_path, tmp_path):
    """Fuzz oracle 4: what's loaded, saved and loaded again is equal."""
    for name in ("tau-bench", "real-persona-chat", "swe-agent", "claude-code-log"):
        read = list(load_recordings(shared_path / "data" / name))
        write_recording(tmp_path / f"{name}.jsonl", read)
        again = load_recordings(tmp_path / f"{name}.jsonl")
        assert list(again) == read
        assert [c.content_hash for c in again] == [c.content_hash for c in read]
        assert isinstance(again, Recordings)
