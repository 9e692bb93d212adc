"""Calls of real recordings, counted a second time from the raw JSON without any code of the package."""

from __future__ import annotations

import json

import pytest

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


@pytest.mark.parametrize(
    ("name", "roles_of", "n_conversations"),
    [
        ("tau-bench", tau_bench_roles, 50),
        ("crosswoz", crosswoz_roles, 110),
        ("kdconv", kdconv_roles, 150),
        ("real-persona-chat", real_persona_chat_roles, 60),
        ("swe-agent", swe_roles, 2),
        ("swe-smith", swe_roles, 2),
    ],
)
def test_calls_equal_an_independent_count(name, roles_of, n_conversations, shared_path):
    """WB-REC-04 rule 5, WB-DATA-02."""
    folder = shared_path / "data" / name
    recordings = load_recordings(folder)
    expected = [calls_by_rule_5(roles) for roles in roles_of(folder)]
    assert [len(conversation.calls) for conversation in recordings] == expected
    assert recordings.totals()["calls"] == sum(expected)
    assert len(recordings) == n_conversations
    assert {skipped.path.rsplit("/", 1)[-1] for skipped in recordings.skipped} == {"LICENSE", "SOURCE.md"}
    assert all(problem.severity == "note" for problem in recordings.problems)


def test_texts_of_real_recordings_come_through_unchanged(shared_path):
    (path,) = (shared_path / "data" / "tau-bench").glob("*.json")
    raw = json.loads(path.read_text(encoding="utf-8"))
    for result, conversation in zip(raw, load_recordings(path), strict=True):
        messages = [message for message in result["traj"] if message["role"] != "system"]
        assert [message.content for message in conversation.messages] == [m["content"] or "" for m in messages]
        assert conversation.instruction == result["traj"][0]["content"]
