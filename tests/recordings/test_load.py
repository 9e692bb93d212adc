"""`Recordings`: a lazy sequence that knows what it found."""

from __future__ import annotations

import json
import time
import unicodedata
from pathlib import Path

import pytest

from tests.recordings.files import jsonl, say, texts
from workbench.errors import RecordingError
from workbench.model.cassette import Cassette
from workbench.model.cassette_entry import Entry
from workbench.model.types import Message, response_of
from workbench.recordings import Conversation, Recordings, load, load_recordings, write_recording
from workbench.recordings.problems import Problem, shown
from workbench.session.types import Event


def record(text: str = "a", **more):
    return {"messages": [say("user", text), say("assistant", "b")], **more}


@pytest.fixture
def path(tmp_path):
    return jsonl(tmp_path / "a.jsonl", *(record(str(n), id=f"c{n}") for n in range(5)))


def test_recordings_can_be_walked_many_times(path):
    """WB-REC-01: a lazy sequence."""
    recordings = load_recordings(path)
    assert repr(recordings) == "Recordings(not yet walked)"
    assert list(recordings) == list(recordings)
    assert repr(recordings) == "Recordings(5 conversations, 0 problems)"


def test_a_large_set_is_read_again_instead_of_kept(path, monkeypatch):
    """REL-12."""
    monkeypatch.setattr(load, "KEPT_EVENTS", 3)
    recordings = load_recordings(path)
    first, second = list(recordings), list(recordings)
    assert first == second
    assert first[0] is not second[0]
    assert recordings[0] is recordings[0]
    assert len(recordings) == 5


def test_one_is_found_by_place_slice_or_id(path):
    recordings = load_recordings(path)
    assert recordings[0].id == "c0"
    assert recordings[-1].id == recordings["c4"].id == "c4"
    assert [c.id for c in recordings[1:3]] == ["c1", "c2"]
    assert isinstance(recordings[1:3], Recordings)
    assert recordings["c1"] in recordings
    with pytest.raises(KeyError, match="did you mean c1"):
        recordings["c-1"]
    with pytest.raises(IndexError):
        recordings[9]


def test_totals_are_the_import_object(tmp_path):
    """WB-CLI-03, WB-REC-05."""
    path = jsonl(tmp_path / "a.jsonl", record(), {"messages": [say("narrator")]}, record())
    totals = load_recordings(path).totals()
    assert totals == {
        "conversations": 2,
        "events": 4,
        "messages": 4,
        "calls": 2,
        "formats": {"openai-chat": 2},
        "problems": [
            {
                "path": str(path),
                "line": 2,
                "column": None,
                "reason": 'role "narrator"',
                "hint": "expected system, user, assistant or tool",
                "severity": "problem",
            }
        ],
    }
    assert json.loads(json.dumps(totals)) == totals


def test_problems_are_known_before_the_first_walk(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", record(), {"messages": []})
    recordings = load_recordings(path)
    assert len(recordings.problems) == 1
    list(recordings)
    assert len(recordings.problems) == 1
    assert str(recordings.problems[0]).startswith(f"{path}:2: no messages; expected")


def test_the_data_hash_follows_content_and_order_not_the_place(tmp_path):
    """REL-13."""
    (tmp_path / "x").mkdir()
    one = load_recordings(jsonl(tmp_path / "a.jsonl", record("1"), record("2")))
    moved = load_recordings(jsonl(tmp_path / "x" / "a.jsonl", record("1"), record("2")))
    swapped = load_recordings(jsonl(tmp_path / "x" / "b.jsonl", record("2"), record("1")))
    assert one.data_hash == moved.data_hash == load_recordings(tmp_path / "a.jsonl").data_hash
    assert one.data_hash != swapped.data_hash
    assert len(one.data_hash) == 64


def test_the_content_hash_sees_every_part():
    event = Event("e", "user", 1, response_of(Message("user", "a")))
    one = Conversation("c", (event,))
    others = [
        one.replace(events=(event.replace(time_ns=2),)),
        one.replace(events=(event.replace(filter_key="x"),)),
        one.replace(instruction="i"),
        one.replace(events=()),
    ]
    assert len({c.content_hash for c in [one, *others]}) == 5
    assert one.content_hash == one.replace(source="elsewhere", line=7, format="x").content_hash
    assert one.place == ""
    assert one.replace(source="a", line=7).place == "a:7"


def test_ready_conversations_can_be_recordings():
    conversation = Conversation("c", (Event("e", "user", 1, response_of(Message("user", "a"))),))
    recordings = Recordings.of([conversation])
    assert list(recordings) == [conversation]
    assert recordings.totals()["events"] == 1
    assert recordings
    assert not Recordings.of([])
    assert recordings.load() is recordings


def test_a_forced_format_wins(tmp_path):
    """WB-REC-01: `format=` overrides."""
    path = jsonl(tmp_path / "a.jsonl", {"messages": [{"role": "usr", "content": "a"}, {"role": "sys", "content": "b"}]})
    assert load_recordings(path).formats == {"dialogue": 1}
    with pytest.raises(RecordingError, match='role "usr"'):
        load_recordings(path, format="openai-chat")


def test_a_format_is_found_behind_broken_first_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'garbage\n{"messages"\n\xff\n[1,2]\n' + json.dumps(record()).encode() + b"\n")
    recordings = load_recordings(path)
    assert len(recordings) == 1
    assert [problem.line for problem in recordings.problems] == [1, 2, 3, 4]


def test_a_stop_in_a_later_file_comes_while_walking(tmp_path):
    """B04: **stop**."""
    jsonl(tmp_path / "a.jsonl", record(), record())
    (tmp_path / "b.jsonl").write_bytes(json.dumps(record()).encode("utf-16-le"))
    recordings = load_recordings(tmp_path)
    with pytest.raises(RecordingError, match="looks like UTF-16"):
        list(recordings)


def test_utf_16_that_is_no_recording_is_skipped_in_a_folder(tmp_path):
    jsonl(tmp_path / "a.jsonl", record())
    (tmp_path / "README").write_bytes("some words".encode("utf-16"))
    assert [skipped.reason for skipped in load_recordings(tmp_path).skipped] == ["not a recording"]


def test_line_separators_inside_texts_do_not_split_lines(tmp_path):
    """M18."""
    odd = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(record(odd), ensure_ascii=False).encode() + b"\r\n\n")
    (conversation,) = load_recordings(path)
    assert conversation.events[0].message.content == odd


HOSTILE = ["'; DROP TABLE events; --", "../../etc/passwd", "=1+1", "<script>alert(1)</script>", "</conversation>",
           "{previous_summary}", "[tool returned: x]", "\x1b[31mred", "\u202egnp.exe", "a\0b", "<|endoftext|>",
           "{'a': {}} %s {0} $y", "\ufeffbom", "e\u0301 é", "\u200b\u2060", "🙂" * 50, "x" * 100_000]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=[ascii(text)[:16] for text in HOSTILE])
def test_hostile_texts_are_only_texts(text, tmp_path):
    """Fuzz corpus: valid conversations load without a problem and come out unchanged."""
    value = {"id": text[:40], "messages": [say("system", text), say("user", text), say("assistant", text)]}
    recordings = load_recordings(jsonl(tmp_path / "a.jsonl", value))
    (conversation,) = recordings
    assert recordings.problems == ()
    assert [message.content for message in conversation.messages] == [text, text]
    assert (conversation.instruction, conversation.id) == (text, text[:40])


def test_half_an_emoji_is_kept_and_noted_other_halves_are_damage(tmp_path):
    """BUG-28, B13: texts cut by UTF-16 length are good data; any other lone half is a broken escape."""
    path = tmp_path / "a.jsonl"
    odd = ["cut \ud83d", "<|endoftext|>", "a\0b"]
    path.write_text("".join(json.dumps(record(text)) + "\n" for text in (*odd, "\ud800", "\ud83d\udc00\udc00")))
    recordings = load_recordings(path)
    assert [c.events[0].message.content for c in recordings] == odd
    assert [(problem.line, problem.text, problem.severity) for problem in recordings.problems] == [
        (1, "content has a broken Unicode escape at character 5; half an emoji; kept", "note"),
        (4, "content has a broken Unicode escape at character 1", "problem"),
        (5, "content has a broken Unicode escape at character 2", "problem"),
    ]
    saved = tmp_path / "saved.jsonl"
    write_recording(saved, recordings)
    assert list(load_recordings(saved)) == list(recordings)


@pytest.mark.parametrize("odd", ["\x1b[2J", "\u202e", "\u2066", "\x9b31m", "\ud800", "\u200f", "\r", "\u2028"])
def test_what_would_steer_a_terminal_is_shown_escaped(odd, tmp_path):
    """SEC-13."""
    rows = [{"messages": [say("user", id=f"e{odd}"), say("assistant", id=f"e{odd}")]}, record()]
    path = jsonl(tmp_path / "a.jsonl", *rows) if odd != "\ud800" else tmp_path / "a.jsonl"
    if odd == "\ud800":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (text,) = [str(problem) for problem in load_recordings(path).problems]
    assert not any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in text)
    assert str(Problem(f"a{odd}.jsonl", 1, None, "r")) == f"a{shown(odd)}.jsonl:1: r"
    assert shown(odd).startswith("\\")


def test_long_values_are_cut_in_messages(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"messages": [say("x" * 5000)]}, record())
    (text,) = texts(load_recordings(path))
    assert len(text) < 200


def test_a_message_with_very_many_tool_calls_is_read(tmp_path):
    """SEC-12."""
    calls = [{"id": f"k{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(20_000)]
    path = jsonl(tmp_path / "a.jsonl", {"messages": [say("user"), say("assistant", None, tool_calls=calls)]})
    assert len(load_recordings(path)[0].events[1].message.tool_calls) == 20_000


@pytest.mark.slow
def test_a_long_conversation_is_read_in_linear_time(tmp_path):
    """REL-12: time per event at 100 000 below 2 x that at 1 000."""
    seconds = []
    for n in (1_000, 50_000):
        path = jsonl(tmp_path / f"{n}.jsonl", *(say(("user", "assistant")[i % 2], f"text {i}") for i in range(n)))
        started = time.process_time()
        assert len(load_recordings(path)[0].events) == n
        seconds.append((time.process_time() - started) / n)
    assert seconds[1] < 2 * seconds[0]


def test_a_cassette_beside_recordings_is_no_recording(tmp_path):
    """WB-REG-01, WB-REC-01: its requests hold messages, and would look like a log."""
    cassette = Cassette(tmp_path / "answers.jsonl")
    messages = [{"role": "user", "content": "sum up"}, {"role": "assistant", "content": "done"}]
    cassette.add(Entry(request={"model": "small", "messages": messages}))
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": messages}) + "\n", encoding="utf-8")
    recordings = load_recordings(tmp_path)
    assert len(recordings) == 1
    assert not recordings.problems
    assert [(Path(one.path).name, one.reason) for one in recordings.skipped] == [
        ("answers.jsonl", "is a cassette of recorded answers, no recording")
    ]
    with pytest.raises(RecordingError, match="is a cassette of recorded answers"):
        load_recordings(tmp_path / "answers.jsonl").load()
