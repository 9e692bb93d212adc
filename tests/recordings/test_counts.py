"""Conversations, messages and calls of real recordings, counted a second time from the raw JSON without any code of the package."""

from __future__ import annotations

import csv
import json

import pytest

from workbench.errors import RecordingError
from workbench.recordings import load_recordings


def tau_bench_roles(folder):
    (path,) = folder.glob("*.json")
    return [[message["role"] for message in result["traj"]] for result in json.loads(path.read_text(encoding="utf-8"))]


def crosswoz_roles(folder):
    (path,) = folder.glob("*.json")
    names = {"usr": "user", "sys": "assistant"}
    dialogues = json.loads(path.read_text(encoding="utf-8")).values()
    return [[names[message["role"]] for message in dialogue["messages"]] for dialogue in dialogues]


def kdconv_roles(folder):
    (path,) = folder.glob("*.json")
    dialogues = json.loads(path.read_text(encoding="utf-8"))
    return [[("user", "assistant")[i % 2] for i in range(len(dialogue["messages"]))] for dialogue in dialogues]


def real_persona_chat_roles(folder):
    dialogues = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return [
        [
            "user" if utterance["interlocutor_id"] == dialogue["utterances"][0]["interlocutor_id"] else "assistant"
            for utterance in dialogue["utterances"]
        ]
        for dialogue in dialogues
    ]


def swe_roles(folder):
    histories = [json.loads(path.read_text(encoding="utf-8"))["history"] for path in sorted(folder.glob("*.traj"))]
    return [[message["role"] for message in history] for history in histories]


def calls_by_rule_5(roles: list[str]) -> int:
    """Recorded answers without greetings: those before the first user message."""
    first_user = roles.index("user") if "user" in roles else len(roles)
    return roles[first_user:].count("assistant")


def claude_code_roles(folder):
    """Rows of one answer would share an id; a tool result comes in a row of the user."""
    conversations = []
    for path in sorted(folder.glob("*.jsonl")):
        roles = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            message = json.loads(line).get("message")
            if message is not None:
                content = message["content"]
                types = {block["type"] for block in content} if isinstance(content, list) else set()
                role = "tool" if "tool_result" in types else message["role"]
                roles[message.get("id") or number] = role
        conversations.append(list(roles.values()))
    return conversations


TABLE = [
    # name, how it is counted from the raw files, format found, conversations, messages without system ones
    ("tau-bench", tau_bench_roles, "tau-bench", 50, 1454),
    ("crosswoz", crosswoz_roles, "dialogue", 110, 1924),
    ("kdconv", kdconv_roles, "dialogue", 150, 2691),
    ("real-persona-chat", real_persona_chat_roles, "dialogue", 60, 1916),
    ("swe-agent", swe_roles, "swe-agent", 2, 63),
    ("swe-smith", swe_roles, "swe-agent", 2, 80),
    ("claude-code-log", claude_code_roles, "claude-code", 2, 22),
]


@pytest.mark.parametrize(("name", "roles_of", "found", "n_conversations", "n_messages"), TABLE)
def test_conversations_messages_and_calls_equal_an_independent_count(
    name, roles_of, found, n_conversations, n_messages, shared_path
):
    """WB-REC-02, WB-REC-04 rule 5, WB-DATA-02: found by detection, counted a second time without our readers."""
    folder = shared_path / "data" / name
    recordings = load_recordings(folder)
    roles = roles_of(folder)
    expected = [calls_by_rule_5(one) for one in roles]
    assert recordings.formats == {found: n_conversations}
    assert len(recordings) == len(roles) == n_conversations
    per_conversation = [sum(role != "system" for role in one) for one in roles]
    assert [len(list(conversation.messages)) for conversation in recordings] == per_conversation
    assert recordings.totals()["messages"] == sum(per_conversation) == n_messages
    assert [len(conversation.calls) for conversation in recordings] == expected
    assert recordings.totals()["calls"] == sum(expected)
    assert {skipped.path.rsplit("/", 1)[-1] for skipped in recordings.skipped} == {"LICENSE", "SOURCE.md"}
    assert all(problem.severity == "note" for problem in recordings.problems)


def test_a_table_of_questions_and_answers_loads_with_its_columns_named(shared_path):
    """WB-REC-02 `csv`: nothing in such a file says which rows are one conversation."""
    folder = shared_path / "data" / "korean-chatbot"
    (path,) = folder.glob("*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["Q"].strip() and row["A"].strip()]
    with pytest.raises(RecordingError, match="no conversation found"):
        load_recordings(folder)
    recordings = load_recordings(folder, map={"user": "Q", "assistant": "A"})
    assert recordings.formats == {"csv": 1}
    assert recordings.totals()["messages"] == 2 * len(rows) == 6000


@pytest.mark.parametrize("name", ["aider", "openhands", "toolbench", "udhr"])
def test_what_has_none_of_the_formats_is_said_to_have_none(name, shared_path):
    """WB-REC-01, SEC-04: never read as zero messages in silence."""
    with pytest.raises(RecordingError, match="no conversation found") as caught:
        load_recordings(shared_path / "data" / name)
    assert "are no recordings; known: " in caught.value.hint


def test_every_folder_of_the_shared_data_is_in_one_of_these_tests(shared_path):
    named = {row[0] for row in TABLE} | {"korean-chatbot", "aider", "openhands", "toolbench", "udhr"}
    assert {path.name for path in (shared_path / "data").iterdir() if path.is_dir()} <= named


def test_texts_of_real_recordings_come_through_unchanged(shared_path):
    (path,) = (shared_path / "data" / "tau-bench").glob("*.json")
    raw = json.loads(path.read_text(encoding="utf-8"))
    for result, conversation in zip(raw, load_recordings(path), strict=True):
        messages = [message for message in result["traj"] if message["role"] != "system"]
        assert [message.content for message in conversation.messages] == [m["content"] or "" for m in messages]
        assert conversation.instruction == result["traj"][0]["content"]
